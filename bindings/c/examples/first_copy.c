/* Opens an engine, copies memory of the program, and waits for the copy: first_copy [ENGINE]
 * Build: cc -std=c99 first_copy.c $(pkg-config --cflags --libs dma) */
#include <dma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the library's description of the failure, which contains the remedy. */
static void check(dma_status status, const char *what) {
  if (status != DMA_OK) {
    dma_error error = {.size = sizeof error};
    if (dma_last_error(&error) == DMA_OK)
      fprintf(stderr, "%s: %s\n", what, error.text);
    exit(EXIT_FAILURE);
  }
}

int main(int argc, char **argv) {
  enum { LEN = 1 << 20 };
  dma_engine engine;
  dma_engine_info info = {.size = sizeof info};
  dma_region src, dst;
  dma_region_info to = {.size = sizeof to};
  dma_queue queue;
  dma_completion done;
  dma_copy copy;
  unsigned char *bytes = malloc(LEN);
  if (!bytes)
    return EXIT_FAILURE;
  memset(bytes, 7, LEN);

  check(dma_open(argc > 1 ? argv[1] : "auto", &engine), "open");
  check(dma_engine_describe(engine, &info), "describe");
  printf("%s: %s, version %s\n", info.backend, info.device, info.version);

  /* The source is memory of the program, and the destination is memory of the engine. */
  check(dma_region_register(engine, bytes, LEN, DMA_READ, &src), "register");
  check(dma_region_allocate(engine, LEN, NULL, &dst), "allocate");
  check(dma_queue_open(engine, NULL, &queue), "open queue");

  copy = (dma_copy){.src = {src, 0, LEN}, .dst = {dst, 0, LEN}, .token = 1};
  check(dma_queue_copy(queue, &copy, 1, NULL), "copy");
  check(dma_queue_wait_for(queue, 1, 60000, &done), "wait");
  check(done.status, "the copy");

  check(dma_region_describe(dst, &to), "describe");
  if (memcmp(bytes, to.memory, LEN) != 0)
    return EXIT_FAILURE;
  printf("%d bytes copied\n", LEN);

  check(dma_queue_close(queue, 5000), "close queue");
  check(dma_region_close(src), "close source"); /* From here on the memory may be freed. */
  check(dma_region_close(dst), "close destination");
  check(dma_close(engine), "close");
  free(bytes);
  return EXIT_SUCCESS;
}
