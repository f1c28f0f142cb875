/* A lost device, which reports nothing any more. The library keeps the memory of its operations forever, so this program
 * ends with leaks, and does not run under tools that report these. */
#include "check.h"

enum { LEN = 4096 };

/* After the loss of the device, all calls that need the device have one status. */
static void a_lost_device_has_one_status(uint32_t lanes) {
  dma_engine engine;
  dma_queue_options options;
  dma_queue queue;
  dma_region src, dst;
  dma_copy one;
  dma_batch batch;
  dma_completion done;
  dma_error error;
  size_t count, ready;
  int fd;
  OK(dma_open("sim:seed=7,faults=dead@1", &engine));
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.lanes = lanes;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_queue_descriptor(queue, &fd));
  OK(dma_region_allocate(engine, LEN, NULL, &src));
  OK(dma_region_allocate(engine, LEN, NULL, &dst));
  memset(&one, 0, sizeof one);
  one.src.region = src;
  one.dst.region = dst;
  one.src.len = one.dst.len = LEN;
  OK(dma_batch_create(&one, 1, &batch));
  OK(dma_queue_submit(queue, batch, 1));
  OK(dma_queue_wait(queue, &done, 1, 60000, &count));
  CHECK(count == 1 && done.token == 1 && done.status == DMA_DEVICE_LOST);
  OK(dma_last_failures(NULL, 0, &count));
  CHECK(count == 0);
  FAILS(DMA_DEVICE_LOST, dma_queue_copy(queue, &one, 1, NULL));
  FAILS(DMA_DEVICE_LOST, dma_queue_submit(queue, batch, 2));
  error.size = sizeof error;
  OK(dma_last_error(&error));
  CHECK(strstr(error.text, "batch on sim: ") == error.text);
  FAILS(DMA_DEVICE_LOST, dma_queue_arm(queue, &ready));
  FAILS(DMA_DEVICE_LOST, dma_queue_stop(queue, 60000));
  FAILS(DMA_CLOSED, dma_queue_copy(queue, &one, 1, NULL));
  FAILS(DMA_DEVICE_LOST, dma_queue_close(queue, 60000));
  FAILS(DMA_IN_USE, dma_region_close(src));
  OK(dma_last_error(&error));
  CHECK(strstr(error.remedy, "lost") != NULL);
  OK(dma_batch_close(batch));
  OK(dma_close(engine));
}

int main(void) {
  a_lost_device_has_one_status(0);
  a_lost_device_has_one_status(1);
  puts(checks_failed ? "wrong" : "right");
  return checks_failed;
}
