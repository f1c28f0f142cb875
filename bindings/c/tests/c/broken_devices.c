/* Devices that fail, reset, lose completions, hang and vanish: every operation is reported once, a region closes only
 * when no device may write it, and the failed copies of a batch are reported. */
#include "check.h"

enum { COPIES = 8, LEN = 4096 };

static size_t count_of(dma_queue queue, const char *name) {
  dma_counters counters;
  counters.size = sizeof counters;
  OK(dma_queue_counters(queue, &counters));
  CHECK(counters.submitted ==
        counters.completed + counters.failed + counters.aborted + counters.abandoned + counters.in_flight);
  printf("%s: %d completed, %d failed, %d aborted, %d abandoned\n", name, (int)counters.completed,
         (int)counters.failed, (int)counters.aborted, (int)counters.abandoned);
  return (size_t)counters.abandoned;
}

static void copies_on(const char *faults, uint32_t lanes) {
  char name[100];
  dma_engine engine;
  dma_queue_options options;
  dma_queue queue;
  dma_region src, dst[COPIES];
  dma_copy copy;
  dma_completion done;
  unsigned seen[COPIES] = {0};
  size_t i, count, abandoned, unclosed = 0, reported = 0;
  dma_status stopped;

  snprintf(name, sizeof name, "sim:seed=7,faults=%s", faults);
  OK(dma_open(name, &engine));
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.lanes = lanes;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_region_allocate(engine, LEN, NULL, &src));
  for (i = 0; i < COPIES; i++) {
    OK(dma_region_allocate(engine, LEN, NULL, &dst[i]));
    memset(&copy, 0, sizeof copy);
    copy.src.region = src;
    copy.dst.region = dst[i];
    copy.src.len = copy.dst.len = LEN;
    copy.token = i;
    OK(dma_queue_copy(queue, &copy, 1, NULL));
  }
  OK(dma_queue_flush(queue));
  FAILS(DMA_IN_USE, dma_region_close(src));
  for (i = 0; i < COPIES; i++)
    FAILS(DMA_IN_USE, dma_region_close(dst[i]));
  stopped = dma_queue_stop(queue, 100);
  CHECK(stopped == DMA_OK || stopped == DMA_TIMED_OUT || stopped == DMA_DEVICE_LOST);
  abandoned = count_of(queue, name);
  CHECK((abandoned > 0) == (stopped != DMA_OK));
  do {
    OK(dma_queue_poll(queue, &done, 1, &count));
    if (count) {
      CHECK(done.token < COPIES && !seen[done.token]++);
      reported++;
    }
  } while (count);
  CHECK(reported == COPIES);
  for (i = 0; i < COPIES; i++) {
    dma_status closed = dma_region_close(dst[i]);
    CHECK(closed == DMA_OK || closed == DMA_IN_USE);
    unclosed += closed != DMA_OK;
  }
  CHECK(unclosed == abandoned);
  CHECK(dma_region_close(src) == (abandoned ? DMA_IN_USE : DMA_OK));
  CHECK(dma_queue_close(queue, 0) == stopped);
  OK(dma_close(engine));
}

static void failed_copies_of_a_batch_are_known(uint32_t lanes) {
  dma_engine engine;
  dma_queue_options options;
  dma_queue queue;
  dma_region src, dst;
  dma_copy copies[COPIES];
  dma_batch batch;
  dma_completion done;
  dma_error error;
  dma_failure failures[COPIES];
  size_t i, count = 0;
  OK(dma_open("sim:seed=7,faults=fail@3", &engine));
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.lanes = lanes;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_region_allocate(engine, COPIES * LEN, NULL, &src));
  OK(dma_region_allocate(engine, COPIES * LEN, NULL, &dst));
  memset(copies, 0, sizeof copies);
  for (i = 0; i < COPIES; i++) {
    copies[i].src.region = src;
    copies[i].dst.region = dst;
    copies[i].src.offset = copies[i].dst.offset = i * LEN;
    copies[i].src.len = copies[i].dst.len = LEN;
  }
  OK(dma_batch_create(copies, COPIES, &batch));
  OK(dma_queue_submit(queue, batch, 1));
  OK(dma_queue_wait_for(queue, 1, 120000, &done));
  CHECK(done.status == DMA_DEVICE_FAULT);
  error.size = sizeof error;
  OK(dma_last_error(&error));
  CHECK(error.status == done.status && error.retry == DMA_RETRY_FEW_TIMES && strstr(error.text, "copy") != NULL);
  OK(dma_last_failures(failures, COPIES, &count));
  CHECK(count >= 1 && count <= COPIES && failures[0].index < COPIES);
  for (i = 0; i < count; i++)
    CHECK(failures[i].status == DMA_DEVICE_FAULT || failures[i].status == DMA_ABORTED);
  /* The batch can be submitted again. */
  OK(dma_queue_submit(queue, batch, 2));
  OK(dma_queue_wait_for(queue, 2, 120000, &done));
  CHECK(done.status == DMA_OK);
  OK(dma_batch_close(batch));
  OK(dma_queue_close(queue, 1000));
  OK(dma_region_close(src));
  OK(dma_region_close(dst));
  OK(dma_close(engine));
}

/* A stall is known before the queue is full. */
static void a_stall_is_known(uint32_t lanes) {
  dma_engine engine;
  dma_queue_options options;
  dma_queue queue;
  dma_region src, dst;
  dma_copy one;
  dma_completion done;
  uint64_t stalled = 1;
  size_t count, available;
  int waits;
  OK(dma_open("sim:seed=1,faults=stick@1", &engine));
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.depth = 8;
  options.lanes = lanes;
  options.stall_timeout_ms = 20;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_region_allocate(engine, 64, NULL, &src));
  OK(dma_region_allocate(engine, 64, NULL, &dst));
  OK(dma_queue_stalled(queue, &stalled));
  CHECK(stalled == 0);
  memset(&one, 0, sizeof one);
  one.src.region = src;
  one.dst.region = dst;
  one.src.len = one.dst.len = 64;
  OK(dma_queue_copy(queue, &one, 1, NULL));
  /* At least a minute. */
  for (waits = 0; stalled == 0 && waits < 6000; waits++) {
    CHECK(dma_queue_wait(queue, &done, 1, 10, &count) == DMA_TIMED_OUT);
    OK(dma_queue_stalled(queue, &stalled));
  }
  CHECK(stalled >= 20);
  OK(dma_queue_depth(queue, NULL, &available));
  CHECK(available == 7);
  while (available-- > 0)
    OK(dma_queue_copy(queue, &one, 1, NULL));
  FAILS(DMA_TIMED_OUT, dma_queue_wait_for_room(queue, &done, 1, 10, &count));
  OK(dma_queue_stop(queue, 0));
  OK(dma_queue_stalled(queue, &stalled));
  CHECK(stalled == 0);
  OK(dma_queue_close(queue, 0));
  OK(dma_region_close(src));
  OK(dma_region_close(dst));
  OK(dma_close(engine));
}

int main(void) {
  static const char *const faults[] = {"fail@2", "reset@3", "refuse@2", "lose@4", "stick@3", "gone@2"};
  size_t i;
  uint32_t lanes;
  for (lanes = 0; lanes < 2; lanes++) {
    for (i = 0; i < sizeof faults / sizeof *faults; i++)
      copies_on(faults[i], lanes);
    failed_copies_of_a_batch_are_known(lanes);
    a_stall_is_known(lanes);
  }
  puts(checks_failed ? "wrong" : "right");
  return checks_failed;
}
