/* The loop of a server: a ring of requests, each of which copies a block, and one epoll for the device and all other
 * sources. Here a timer stands for the clients. request_ring [ENGINE]
 * Build: cc -std=c99 request_ring.c $(pkg-config --cflags --libs dma) */
#define _GNU_SOURCE
#include <dma.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { SLOTS = 16, BLOCK = 64 * 1024, REQUESTS = 200 };

static void check(int ok, const char *what) {
  if (!ok) {
    dma_error error = {.size = sizeof error};
    perror(what);
    if (dma_last_error(&error) == DMA_OK)
      fprintf(stderr, "%s: %s\n", what, error.text);
    exit(EXIT_FAILURE);
  }
}

int main(int argc, char **argv) {
  dma_engine engine;
  dma_region from, to;
  dma_region_info from_info = {.size = sizeof from_info}, to_info = {.size = sizeof to_info};
  dma_queue_options options = {.size = sizeof options, .depth = SLOTS};
  dma_queue queue;
  struct epoll_event event = {.events = EPOLLIN};
  struct itimerspec often = {.it_interval = {.tv_nsec = 200000}, .it_value = {.tv_nsec = 200000}};
  int submitted = 0, completed = 0, wakes = 0, fd, timer, poller;
  int idle[SLOTS], idle_count = 0;

  check(dma_open(argc > 1 ? argv[1] : "cpu", &engine) == DMA_OK, "open");
  check(dma_region_allocate(engine, SLOTS * BLOCK, NULL, &from) == DMA_OK, "allocate");
  check(dma_region_allocate(engine, SLOTS * BLOCK, NULL, &to) == DMA_OK, "allocate");
  check(dma_region_describe(from, &from_info) == DMA_OK, "describe");
  check(dma_region_describe(to, &to_info) == DMA_OK, "describe");
  check(dma_queue_open(engine, &options, &queue) == DMA_OK, "open queue");
  for (int slot = 0; slot < SLOTS; slot++)
    idle[idle_count++] = slot;

  if (dma_queue_descriptor(queue, &fd) == DMA_UNSUPPORTED) {
    puts("this engine can only be polled");
    return EXIT_SUCCESS;
  }
  poller = epoll_create1(EPOLL_CLOEXEC);
  timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  check(poller >= 0 && timer >= 0 && timerfd_settime(timer, 0, &often, NULL) == 0, "timer");
  event.data.fd = fd;
  check(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
  event.data.fd = timer;
  check(epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event) == 0, "epoll_ctl");

  while (completed < REQUESTS) {
    struct epoll_event events[2];
    dma_completion done[SLOTS];
    size_t count, ready;

    /* Take the completions, and sleep if there are none. */
    check(dma_queue_arm(queue, &ready) == DMA_OK, "arm");
    if (ready == 0) {
      uint64_t ticks = 0;
      int woken = epoll_wait(poller, events, 2, 5000);
      /* A signal, also one that continues a stopped process, interrupts the wait. */
      if (woken < 0 && errno == EINTR)
        continue;
      check(woken > 0, "epoll_wait");
      wakes++;
      for (int i = 0; i < woken; i++)
        if (events[i].data.fd == timer && read(timer, &ticks, sizeof ticks) != sizeof ticks)
          ticks = 0;
      /* Each tick is a request, as long as the ring has free slots. */
      for (; ticks > 0 && idle_count > 0 && submitted < REQUESTS; ticks--) {
        size_t slot = (size_t)idle[--idle_count];
        dma_copy copy = {{from, slot * BLOCK, BLOCK}, {to, slot * BLOCK, BLOCK}, slot};
        memset((char *)from_info.memory + slot * BLOCK, submitted, BLOCK);
        check(dma_queue_copy(queue, &copy, 1, NULL) == DMA_OK, "copy");
        submitted++;
      }
    }
    check(dma_queue_poll(queue, done, SLOTS, &count) == DMA_OK, "poll");
    for (size_t i = 0; i < count; i++) {
      size_t at = (size_t)done[i].token * BLOCK;
      check(done[i].status == DMA_OK, "a request");
      check(memcmp((char *)from_info.memory + at, (char *)to_info.memory + at, BLOCK) == 0, "the bytes");
      idle[idle_count++] = (int)done[i].token;
      completed++;
    }
  }
  printf("%d requests of %d bytes, %d wakes\n", completed, BLOCK, wakes);
  close(timer);
  close(poller);
  check(dma_queue_close(queue, 5000) == DMA_OK, "close queue");
  check(dma_region_close(from) == DMA_OK && dma_region_close(to) == DMA_OK, "close regions");
  check(dma_close(engine) == DMA_OK, "close");
  return EXIT_SUCCESS;
}
