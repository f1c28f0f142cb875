/* Handles of the parent in a forked child. The device never ends the parent's operation, so this program ends with
 * leaks. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 4096 };

struct opened {
  dma_engine engine;
  dma_queue queue;
  dma_region src, dst;
  dma_export exported;
  dma_batch batch;
  dma_copy one;
};

/* Opens everything, and submits an operation that never ends. */
static struct opened open_all(uint32_t lanes) {
  struct opened all;
  dma_queue_options options;
  dma_memory_options exportable;
  int fd;
  memset(&all, 0, sizeof all);
  OK(dma_open("sim:faults=stick@1", &all.engine));
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.lanes = lanes;
  options.stall_timeout_ms = UINT32_MAX;
  OK(dma_queue_open(all.engine, &options, &all.queue));
  OK(dma_queue_descriptor(all.queue, &fd));
  memset(&exportable, 0, sizeof exportable);
  exportable.size = sizeof exportable;
  exportable.export_rights = DMA_READ;
  OK(dma_region_allocate(all.engine, LEN, &exportable, &all.src));
  OK(dma_region_allocate(all.engine, LEN, NULL, &all.dst));
  OK(dma_region_export(all.src, 0, LEN, DMA_READ, &all.exported));
  all.one.src.region = all.src;
  all.one.dst.region = all.dst;
  all.one.src.len = all.one.dst.len = LEN;
  all.one.token = 7;
  OK(dma_queue_copy(all.queue, &all.one, 1, NULL));
  OK(dma_queue_flush(all.queue));
  OK(dma_batch_create(&all.one, 1, &all.batch));
  return all;
}

static void no_call_of_a_child_blocks(struct opened all, uint32_t lanes) {
  const uint8_t pattern[8] = {0};
  const uint32_t forever = UINT32_MAX;
  dma_completion done;
  dma_counters counters;
  dma_region region;
  dma_queue queue;
  uint64_t number;
  size_t count;
  FAILS(DMA_UNSUPPORTED, dma_queue_copy(all.queue, &all.one, 1, NULL));
  FAILS(DMA_UNSUPPORTED, dma_queue_copy_list(all.queue, &all.one.src, 1, &all.one.dst, 1, 1));
  FAILS(DMA_UNSUPPORTED, dma_queue_fill(all.queue, &all.one.dst, 1, pattern, 1));
  FAILS(DMA_UNSUPPORTED, dma_queue_submit(all.queue, all.batch, 1));
  counters.size = sizeof counters;
  OK(dma_queue_counters(all.queue, &counters));
  CHECK(counters.submitted == 0);
  OK(dma_queue_stalled(all.queue, &number));
  if (lanes == 0) {
    /* The completion says that the operation is the parent's. */
    OK(dma_queue_wait(all.queue, &done, 1, forever, &count));
    CHECK(count == 1 && done.token == 7 && done.status == DMA_UNSUPPORTED);
    FAILS(DMA_NOT_FOUND, dma_queue_wait_for(all.queue, 7, forever, &done));
    OK(dma_queue_stop(all.queue, forever));
  } else {
    size_t ready;
    int fd;
    OK(dma_queue_depth(all.queue, &count, &ready));
    CHECK(ready == 0);
    FAILS(DMA_UNSUPPORTED, dma_queue_cancel(all.queue, 7));
    FAILS(DMA_UNSUPPORTED, dma_queue_flush(all.queue));
    FAILS(DMA_UNSUPPORTED, dma_queue_poll(all.queue, &done, 1, &count));
    FAILS(DMA_UNSUPPORTED, dma_queue_wait(all.queue, &done, 1, forever, &count));
    FAILS(DMA_UNSUPPORTED, dma_queue_wait_for(all.queue, 7, forever, &done));
    FAILS(DMA_UNSUPPORTED, dma_queue_wait_for_room(all.queue, &done, 1, forever, &count));
    FAILS(DMA_UNSUPPORTED, dma_queue_descriptor(all.queue, &fd));
    FAILS(DMA_UNSUPPORTED, dma_queue_arm(all.queue, &ready));
    FAILS(DMA_UNSUPPORTED, dma_queue_stop(all.queue, forever));
  }
  FAILS(DMA_UNSUPPORTED, dma_queue_open(all.engine, NULL, &queue));
  FAILS(DMA_UNSUPPORTED, dma_region_allocate(all.engine, LEN, NULL, &region));
  OK(dma_region_read(all.dst, 0, &number, sizeof number));
  FAILS(DMA_UNSUPPORTED, dma_export_revoke(all.exported, forever));
  OK(dma_region_close(all.src));
  FAILS(DMA_CLOSED, dma_region_close(all.src));
  OK(dma_batch_close(all.batch));
  OK(dma_queue_close(all.queue, forever));
  OK(dma_close(all.engine));
}

/* Waits until the program ends. */
static void *wait_in_a_call(void *queue) {
  dma_completion done;
  size_t count;
  for (;;) dma_queue_wait(*(dma_queue *)queue, &done, 1, UINT32_MAX, &count);
  return NULL;
}

static void a_child_closes_a_queue_in_which_a_thread_of_the_parent_waits(void) {
  static struct opened all;
  dma_counters counters;
  pthread_t thread;
  int status = 1;
  pid_t pid;
  all = open_all(0);
  CHECK(pthread_create(&thread, NULL, wait_in_a_call, &all.queue) == 0);
  counters.size = sizeof counters;
  /* From this status on, the thread is in the call, which does not end. */
  while (dma_queue_counters(all.queue, &counters) != DMA_IN_USE) sched_yield();
  pid = fork();
  if (pid == 0) {
    alarm(120);
    FAILS(DMA_IN_USE, dma_queue_counters(all.queue, &counters));
    OK(dma_queue_close(all.queue, UINT32_MAX));
    FAILS(DMA_CLOSED, dma_queue_close(all.queue, UINT32_MAX));
    OK(dma_batch_close(all.batch));
    OK(dma_close(all.engine));
    fflush(stdout);
    _exit(checks_failed);
  }
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  FAILS(DMA_IN_USE, dma_queue_close(all.queue, 0));
}

int main(void) {
  uint32_t lanes;
  for (lanes = 0; lanes < 2; lanes++) {
    struct opened all = open_all(lanes);
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
      /* The signal ends a child that blocks. */
      alarm(120);
      no_call_of_a_child_blocks(all, lanes);
      fflush(stdout);
      _exit(checks_failed);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(dma_queue_cancel(all.queue, 7) == DMA_OK);
  }
  a_child_closes_a_queue_in_which_a_thread_of_the_parent_waits();
  puts(checks_failed ? "wrong" : "right");
  return checks_failed;
}
