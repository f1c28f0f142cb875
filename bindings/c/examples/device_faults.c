/* Tests a program's error handling on a simulated device that resets, fails and refuses: device_faults [SEED]
 * The same seed gives the same faults. The library tells for which failures a retry can succeed.
 * Build: cc -std=c99 device_faults.c $(pkg-config --cflags --libs dma) */
#include <dma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES = 200, LEN = 4096, TRIES = 20 };

static void check(dma_status status, const char *what) {
  if (status != DMA_OK) {
    dma_error error = {.size = sizeof error};
    if (dma_last_error(&error) == DMA_OK)
      fprintf(stderr, "%s: %s\n", what, error.text);
    exit(EXIT_FAILURE);
  }
}

int main(int argc, char **argv) {
  char name[128];
  dma_engine engine;
  dma_region from, to;
  dma_region_info from_info = {.size = sizeof from_info}, to_info = {.size = sizeof to_info};
  dma_queue queue;
  dma_counters counters = {.size = sizeof counters};
  unsigned tries[COPIES] = {0};
  size_t left = COPIES, next = 0, in_flight = 0;
  unsigned long repeated = 0;

  snprintf(name, sizeof name, "sim:profile=bluefield3,seed=%d,faults=reset:p=0.02+fail:p=0.03+refuse:p=0.02",
           argc > 1 ? atoi(argv[1]) : 7);
  check(dma_open(name, &engine), "open");
  check(dma_region_allocate(engine, COPIES * LEN, NULL, &from), "allocate");
  check(dma_region_allocate(engine, COPIES * LEN, NULL, &to), "allocate");
  check(dma_region_describe(from, &from_info), "describe");
  check(dma_region_describe(to, &to_info), "describe");
  check(dma_queue_open(engine, NULL, &queue), "open queue");
  for (size_t i = 0; i < (size_t)COPIES * LEN; i++)
    ((unsigned char *)from_info.memory)[i] = (unsigned char)(i * 31 >> 4);

  while (left > 0) {
    dma_completion done[32];
    size_t count;
    /* Submit until the queue is full. */
    while (next < COPIES) {
      dma_copy copy = {{from, next * LEN, LEN}, {to, next * LEN, LEN}, next};
      dma_status status = dma_queue_copy(queue, &copy, 1, NULL);
      if (status == DMA_QUEUE_FULL)
        break;
      check(status, "copy");
      next++;
      in_flight++;
    }
    check(dma_queue_wait(queue, done, 32, 60000, &count), "wait");
    for (size_t i = 0; i < count; i++) {
      size_t which = (size_t)done[i].token;
      dma_copy again = {{from, which * LEN, LEN}, {to, which * LEN, LEN}, which};
      in_flight--;
      if (done[i].status == DMA_OK) {
        left--;
        continue;
      }
      if (dma_status_retry(done[i].status) == DMA_RETRY_NEVER || ++tries[which] == TRIES)
        check(done[i].status, "a copy that no retry can cure");
      /* After the completion, the queue has room. */
      check(dma_queue_copy(queue, &again, 1, NULL), "copy again");
      in_flight++;
      repeated++;
    }
  }
  check(dma_queue_counters(queue, &counters), "counters");
  printf("%s\n%d copies, %lu repeated: %llu failed, %llu were aborted by %llu resets\n", name, COPIES, repeated,
         (unsigned long long)counters.failed, (unsigned long long)counters.aborted,
         (unsigned long long)counters.resets);
  if (in_flight != 0 || memcmp(from_info.memory, to_info.memory, (size_t)COPIES * LEN) != 0)
    return EXIT_FAILURE;
  check(dma_queue_close(queue, 5000), "close queue");
  check(dma_region_close(from), "close");
  check(dma_region_close(to), "close");
  check(dma_close(engine), "close");
  return EXIT_SUCCESS;
}
