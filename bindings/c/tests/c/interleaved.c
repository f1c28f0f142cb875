/* Copies and batches that are executed within the call, in random order with polls, waits and cancellations: a model
 * computes the expected completions and their order. Then threads submit one batch, and close regions of copies whose
 * completions were not received. At last, threads wait for room on a queue whose completions another thread receives. */
#include "check.h"
#include <pthread.h>

enum { DEPTH = 8, ROUNDS = 50000, SUBMISSIONS = 20000, THREADS = 3 };

static dma_engine engine;
static dma_region from, to;
static dma_batch shared;

static dma_copy copy_of(dma_region src, dma_region dst, uint64_t token) {
  dma_copy copy;
  memset(&copy, 0, sizeof copy);
  copy.src.region = src;
  copy.dst.region = dst;
  copy.src.len = copy.dst.len = 64;
  copy.token = token;
  return copy;
}

/* Tokens of operations in flight in their order, and the token of each batch in flight. */
static uint64_t due[DEPTH], next_token = 1, flying[2];
static size_t in_flight;

static void received(size_t at) {
  uint64_t token = due[at];
  memmove(&due[at], &due[at + 1], (--in_flight - at) * sizeof due[0]);
  flying[0] = flying[0] == token ? 0 : flying[0];
  flying[1] = flying[1] == token ? 0 : flying[1];
}

static void submit(dma_queue queue, const dma_batch *batches, unsigned which) {
  dma_copy copy = copy_of(from, to, next_token);
  dma_status status = which < 2 ? dma_queue_submit(queue, batches[which], next_token) : dma_queue_copy(queue, &copy, 1, NULL);
  dma_status expected = in_flight == DEPTH ? DMA_QUEUE_FULL : which < 2 && flying[which] ? DMA_IN_USE : DMA_OK;
  CHECK(status == expected);
  if (status == DMA_OK) {
    if (which < 2)
      flying[which] = next_token;
    due[in_flight++] = next_token++;
  }
}

static void interleaved(void) {
  dma_queue_options options;
  dma_queue queue;
  dma_batch batches[2];
  dma_copy copy = copy_of(from, to, 0);
  dma_completion done[3];
  size_t count, depth, available, i, n;
  unsigned random = 7;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.depth = DEPTH;
  OK(dma_queue_open(engine, &options, &queue));
  for (i = 0; i < 2; i++)
    OK(dma_batch_create(&copy, 1, &batches[i]));
  for (i = 0; i < ROUNDS && !checks_failed; i++) {
    unsigned what, choice;
    random = random * 1103515245u + 12345u;
    what = (random >> 16) % 8;
    choice = (random >> 20) % 64;
    if (what < 4) {
      submit(queue, batches, choice % 3);
    } else if (what == 7 && in_flight > 0) {
      size_t at = choice % in_flight;
      if (choice > 31) {
        OK(dma_queue_cancel(queue, due[at]));
      } else {
        OK(dma_queue_wait_for(queue, due[at], 120000, done));
        CHECK(done[0].token == due[at] && done[0].status == DMA_OK);
      }
      received(at);
    } else {
      OK(dma_queue_poll(queue, done, 1 + choice % 3, &count));
      for (n = 0; n < count; n++) {
        CHECK(in_flight > 0 && done[n].token == due[0] && done[n].status == DMA_OK);
        received(0);
      }
    }
    OK(dma_queue_depth(queue, &depth, &available));
    CHECK(depth == DEPTH && available == DEPTH - in_flight);
  }
  /* Batches whose completions were not received are free once the queue is closed. */
  for (i = 0; i < 2; i++)
    (void)dma_queue_submit(queue, batches[i], 1);
  OK(dma_queue_close(queue, 0));
  for (i = 0; i < 2; i++)
    OK(dma_batch_close(batches[i]));
}

static void *submits_the_batch(void *unused) {
  dma_queue queue;
  dma_completion done;
  size_t count;
  unsigned i;
  OK(dma_queue_open(engine, NULL, &queue));
  for (i = 0; i < SUBMISSIONS; i++) {
    dma_status status = dma_queue_submit(queue, shared, i);
    CHECK(status == DMA_OK || status == DMA_IN_USE);
    if (status == DMA_OK) {
      OK(dma_queue_wait(queue, &done, 1, 120000, &count));
      CHECK(count == 1 && done.token == i && done.status == DMA_OK);
    }
  }
  OK(dma_queue_close(queue, 1000));
  return unused;
}

static void *closes_regions(void *unused) {
  dma_queue queue;
  dma_completion done;
  size_t count;
  unsigned i;
  OK(dma_queue_open(engine, NULL, &queue));
  for (i = 0; i < SUBMISSIONS / 10; i++) {
    dma_region region;
    dma_copy copy;
    dma_status closed;
    OK(dma_region_allocate(engine, 64, NULL, &region));
    copy = copy_of(from, region, i);
    OK(dma_queue_copy(queue, &copy, 1, NULL));
    closed = dma_region_close(region);
    CHECK(closed == DMA_OK || closed == DMA_IN_USE);
    OK(dma_queue_wait(queue, &done, 1, 120000, &count));
    CHECK(count == 1 && done.token == i && done.status == DMA_OK);
    if (closed != DMA_OK)
      OK(dma_region_close(region));
  }
  OK(dma_queue_close(queue, 1000));
  return unused;
}

static dma_queue crowded;

/* Waits for room without receiving completions. Returns when the queue is stopped. */
static void *submits_until_stopped(void *unused) {
  dma_copy copy = copy_of(from, to, 1);
  size_t count;
  for (;;) {
    dma_status status = dma_queue_wait_for_room(crowded, NULL, 0, 60000, &count);
    if (status == DMA_CLOSED)
      return unused;
    CHECK(status == DMA_OK && count == 0);
    status = dma_queue_copy(crowded, &copy, 1, NULL);
    CHECK(status == DMA_OK || status == DMA_QUEUE_FULL || status == DMA_CLOSED);
    if (checks_failed)
      return unused;
  }
}

static void waits_for_room(void) {
  pthread_t threads[THREADS];
  dma_queue_options options;
  dma_completion done[DEPTH];
  size_t count, i, received = 0;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.depth = DEPTH;
  options.lanes = 1;
  OK(dma_queue_open(engine, &options, &crowded));
  for (i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, submits_until_stopped, NULL) == 0);
  while (received < SUBMISSIONS && !checks_failed) {
    OK(dma_queue_wait(crowded, done, 1 + received % DEPTH, 60000, &count));
    received += count;
  }
  /* The threads fill the queue, and then wait until it is stopped. */
  for (count = 1; count > 0 && !checks_failed;)
    OK(dma_queue_depth(crowded, NULL, &count));
  OK(dma_queue_stop(crowded, 60000));
  for (i = 0; i < THREADS; i++)
    CHECK(pthread_join(threads[i], NULL) == 0);
  OK(dma_queue_close(crowded, 60000));
}

int main(void) {
  pthread_t threads[THREADS];
  dma_copy copy;
  size_t i;
  OK(dma_open("cpu", &engine));
  OK(dma_region_allocate(engine, 64, NULL, &from));
  OK(dma_region_allocate(engine, 64, NULL, &to));
  interleaved();
  copy = copy_of(from, to, 0);
  OK(dma_batch_create(&copy, 1, &shared));
  for (i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, i > 0 ? submits_the_batch : closes_regions, NULL) == 0);
  for (i = 0; i < THREADS; i++)
    CHECK(pthread_join(threads[i], NULL) == 0);
  OK(dma_batch_close(shared));
  waits_for_room();
  OK(dma_region_close(from));
  OK(dma_region_close(to));
  OK(dma_close(engine));
  puts(checks_failed ? "wrong" : "right");
  return checks_failed;
}
