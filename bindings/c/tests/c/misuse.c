/* One line for each misuse that the library can detect: each returns a failure status, and has an error text. */
#include "check.h"
#include <poll.h>
#include <pthread.h>

static dma_range range(dma_region region, size_t offset, size_t len) {
  dma_range r;
  r.region = region;
  r.offset = offset;
  r.len = len;
  return r;
}

static dma_copy copy(dma_range src, dma_range dst) {
  dma_copy c;
  c.src = src;
  c.dst = dst;
  c.token = 1;
  return c;
}

static void nothing(void *context) { (void)context; }

static dma_engine engine_of(uint64_t id) { dma_engine e; e.id = id; return e; }
static dma_region region_of(uint64_t id) { dma_region r; r.id = id; return r; }
static dma_queue queue_of(uint64_t id) { dma_queue q; q.id = id; return q; }
static dma_batch batch_of(uint64_t id) { dma_batch b; b.id = id; return b; }
static dma_export export_of(uint64_t id) { dma_export e; e.id = id; return e; }
static dma_report report_of(uint64_t id) { dma_report r; r.id = id; return r; }

static void engines(dma_engine engine) {
  dma_engine e, gone;
  dma_engine_info info;
  char text[8];
  size_t len;
  FAILS(DMA_VERSION_MISMATCH, dma_open_abi(DMA_ABI_VERSION + 1, "cpu", 0, &e));
  FAILS(DMA_INVALID_ARGUMENT, dma_open(NULL, &e));
  FAILS(DMA_INVALID_ARGUMENT, dma_open("cpu", NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_open("no such engine", &e));
  FAILS(DMA_INVALID_ARGUMENT, dma_open("\xff\xfe", &e));
  FAILS(DMA_INVALID_ARGUMENT, dma_open("cpu:threads=many", &e));
  FAILS(DMA_INVALID_ARGUMENT, dma_open_abi(DMA_ABI_VERSION, "cpu", 2, &e));
  FAILS(DMA_PERMISSION_DENIED, dma_open_abi(DMA_ABI_VERSION, "doca:lib=/tmp", DMA_OPEN_UNTRUSTED, &e));
  OK(dma_open("cpu", &gone));
  OK(dma_close(gone));
  FAILS(DMA_CLOSED, dma_close(gone));
  FAILS(DMA_INVALID_ARGUMENT, dma_close(engine_of(0)));
  FAILS(DMA_INVALID_ARGUMENT, dma_close(engine_of(12345)));
  FAILS(DMA_INVALID_ARGUMENT, dma_close(engine_of(UINT64_MAX)));
  info.size = sizeof info;
  FAILS(DMA_INVALID_ARGUMENT, dma_engine_describe(engine, NULL));
  FAILS(DMA_CLOSED, dma_engine_describe(gone, &info));
  info.size = 0;
  FAILS(DMA_INVALID_ARGUMENT, dma_engine_describe(engine, &info));
  info.size = sizeof info - 1;
  FAILS(DMA_INVALID_ARGUMENT, dma_engine_describe(engine, &info));
  info.size = SIZE_MAX;
  FAILS(DMA_INVALID_ARGUMENT, dma_engine_describe(engine, &info));
  FAILS(DMA_INVALID_ARGUMENT, dma_engine_describe(engine, (dma_engine_info *)(void *)((char *)&info + 1)));
  FAILS(DMA_INVALID_ARGUMENT, dma_engine_explain(engine, text, sizeof text, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_engine_explain(engine, NULL, sizeof text, &len));
}

static void reports(void) {
  dma_report report, gone;
  dma_report_entry entry;
  size_t count;
  FAILS(DMA_INVALID_ARGUMENT, dma_doctor("cpu", NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_doctor("no such backend", &report));
  FAILS(DMA_INVALID_ARGUMENT, dma_discover(NULL));
  OK(dma_doctor("cpu", &gone));
  OK(dma_report_close(gone));
  FAILS(DMA_CLOSED, dma_report_close(gone));
  FAILS(DMA_CLOSED, dma_report_count(gone, &count));
  FAILS(DMA_INVALID_ARGUMENT, dma_report_count(report_of(0), &count));
  OK(dma_doctor("cpu", &report));
  FAILS(DMA_INVALID_ARGUMENT, dma_report_count(report, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_report_read(report, 0, NULL));
  entry.size = 8;
  FAILS(DMA_INVALID_ARGUMENT, dma_report_read(report, 0, &entry));
  entry.size = sizeof entry;
  FAILS(DMA_OUT_OF_RANGE, dma_report_read(report, SIZE_MAX, &entry));
  OK(dma_report_close(report));
}

static void regions(dma_engine engine) {
  static unsigned char memory[4096];
  dma_memory_options options;
  dma_error error;
  dma_region region, gone;
  dma_region_info info;
  dma_export exported;
  struct {
    dma_memory_options options;
    uint64_t later;
  } later;
  char byte;
  size_t len;
  int fd = -1;
  uint64_t offset = 0;
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine, 64, NULL, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine_of(0), 64, NULL, &region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine, SIZE_MAX, NULL, &region));
  memset(&options, 0, sizeof options);
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine, 64, &options, &region));
  options.size = sizeof options;
  options.align = 3;
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine, 64, &options, &region));
  options.align = 0;
  options.rights = 4;
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine, 64, &options, &region));
  options.rights = 0;
  options.place = 2;
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine, 64, &options, &region));
  options.place = 0;
  options.flags = 4;
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine, 64, &options, &region));
  options.flags = 0;
  options.reserved = 1;
  FAILS(DMA_INVALID_ARGUMENT, dma_region_allocate(engine, 64, &options, &region));
  error.size = sizeof error;
  OK(dma_last_error(&error));
  CHECK(strstr(error.remedy, "set it to 0") != NULL);
  options.reserved = 0;
  options.flags = DMA_ON_NODE;
  options.node = UINT32_MAX;
  FAILS(DMA_NOT_FOUND, dma_region_allocate(engine, 64, &options, &region));
  memset(&later, 0, sizeof later);
  later.options.size = sizeof later;
  later.later = 1;
  FAILS(DMA_UNSUPPORTED, dma_region_allocate(engine, 64, &later.options, &region));
  later.later = 0;
  OK(dma_region_allocate(engine, 64, &later.options, &region));
  OK(dma_region_close(region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_register(engine, NULL, 64, DMA_READ, &region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_register(engine, memory, 64, DMA_READ, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_register(engine, memory, 64, 0, &region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_register(engine, memory, 64, 16, &region));
  FAILS(DMA_OUT_OF_RANGE, dma_region_register(engine, memory, (size_t)-1, DMA_READ, &region));
  FAILS(DMA_OUT_OF_RANGE, dma_region_register(engine, memory, (size_t)PTRDIFF_MAX + 1, DMA_READ, &region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_register_owned(engine, memory, 64, DMA_READ, NULL, NULL, &region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_register_owned(engine, NULL, 64, DMA_READ, nothing, NULL, &region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_register_dmabuf(engine, -1, 0, 64, DMA_READ, &region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_register_dmabuf(engine, 1 << 20, 0, 64, DMA_READ, &region));
  FAILS(DMA_OUT_OF_RANGE, dma_region_register_device(engine, 0, (size_t)-1, DMA_READ, &region));
  OK(dma_region_register(engine, memory, sizeof memory, DMA_READ, &gone));
  OK(dma_region_close(gone));
  FAILS(DMA_CLOSED, dma_region_close(gone));
  info.size = sizeof info;
  FAILS(DMA_CLOSED, dma_region_describe(gone, &info));
  FAILS(DMA_CLOSED, dma_region_dmabuf(gone, &fd, &offset));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_dmabuf(region_of(0), &fd, &offset));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_describe(region_of(0), &info));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_close(region_of(0)));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_close(region_of(gone.id + ((uint64_t)2 << 32))));
  OK(dma_region_register(engine, memory, sizeof memory, DMA_READ, &region));
  CHECK(region.id != gone.id);
  FAILS(DMA_CLOSED, dma_region_close(gone));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_describe(region, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_dmabuf(region, NULL, &offset));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_dmabuf(region, &fd, NULL));
  FAILS(DMA_ACCESS_DENIED, dma_region_dmabuf(region, &fd, &offset));
  FAILS(DMA_OUT_OF_RANGE, dma_region_read(region, 4096, &byte, 1));
  FAILS(DMA_OUT_OF_RANGE, dma_region_read(region, 1, &byte, SIZE_MAX));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_read(region, 0, NULL, 1));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_write(region, 0, NULL, 1));
  FAILS(DMA_OUT_OF_RANGE, dma_region_write(region, 0, memory, SIZE_MAX));
  FAILS(DMA_ACCESS_DENIED, dma_region_write(region, 0, "x", 1));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_export(region, 0, 64, 0, &exported));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_export(region, 0, 64, 4, &exported));
  FAILS(DMA_OUT_OF_RANGE, dma_region_export(region, 1, SIZE_MAX, DMA_READ, &exported));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_export(region, 0, 64, DMA_READ, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_export_descriptor(export_of(0), NULL, 0, &len));
  FAILS(DMA_INVALID_ARGUMENT, dma_export_descriptor(export_of(0), NULL, 0, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_export_revoke(export_of(1), 0));
  FAILS(DMA_MALFORMED, dma_region_import(engine, "no descriptor", 13, &region));
  FAILS(DMA_INVALID_ARGUMENT, dma_region_import(engine, NULL, 13, &region));
  OK(dma_region_close(region));
}

static void submissions(dma_engine engine, dma_engine other_engine, uint32_t lanes) {
  dma_queue_options options;
  dma_queue queue, gone;
  dma_region a, b, foreign, reader, closed;
  dma_range good, whole, empty, huge;
  dma_copy copies[2];
  dma_completion done;
  dma_batch batch, other, taken;
  dma_counters counters;
  uint8_t pattern[8] = {0};
  size_t count = 7, ready;
  static unsigned char memory[64];
  int fd;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_open(engine, NULL, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_open(engine_of(0), NULL, &queue));
  options.depth = SIZE_MAX;
  FAILS(DMA_OUT_OF_RANGE, dma_queue_open(engine, &options, &queue));
  options.depth = 4;
  options.hint = 3;
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_open(engine, &options, &queue));
  options.hint = 0;
  options.reserved = 1;
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_open(engine, &options, &queue));
  options.reserved = 0;
  options.lanes = 1 << 16;
  FAILS(DMA_OUT_OF_RANGE, dma_queue_open(engine, &options, &queue));
  options.lanes = lanes;
  options.size = 4;
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_open(engine, &options, &queue));
  options.size = sizeof options;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_queue_open(engine, &options, &gone));
  OK(dma_queue_close(gone, 0));
  OK(dma_region_allocate(engine, 4096, NULL, &a));
  OK(dma_region_allocate(engine, 4096, NULL, &b));
  OK(dma_region_allocate(other_engine, 4096, NULL, &foreign));
  OK(dma_region_register(engine, memory, sizeof memory, DMA_READ, &reader));
  OK(dma_region_allocate(engine, 4096, NULL, &closed));
  OK(dma_region_close(closed));
  good = range(a, 0, 64);
  whole = range(b, 0, 64);
  empty = range(region_of(0), 0, 0);
  huge = range(a, 1, SIZE_MAX);

  copies[0] = copy(good, whole);
  FAILS(DMA_CLOSED, dma_queue_copy(gone, copies, 1, &count));
  CHECK(count == 0);
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy(queue_of(0), copies, 1, &count));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy(queue_of(77), copies, 1, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy(queue_of(77 | (uint64_t)1 << 30), copies, 1, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy(queue, NULL, 1, NULL));
  FAILS(DMA_OUT_OF_RANGE, dma_queue_copy(queue, copies, SIZE_MAX, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy(queue, (dma_copy *)(void *)((char *)copies + 1), 1, NULL));
  OK(dma_queue_copy(queue, NULL, 0, NULL));
  copies[0] = copy(range(a, 0, 65), whole);
  FAILS(DMA_LENGTH_MISMATCH, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(good, range(a, 63, 64));
  FAILS(DMA_OVERLAP, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(range(a, 4096, 1), whole);
  FAILS(DMA_OUT_OF_RANGE, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(huge, whole);
  FAILS(DMA_OUT_OF_RANGE, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(range(a, SIZE_MAX, 64), whole);
  FAILS(DMA_OUT_OF_RANGE, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(good, range(foreign, 0, 64));
  FAILS(DMA_WRONG_ENGINE, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(good, range(reader, 0, 64));
  FAILS(DMA_ACCESS_DENIED, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(range(closed, 0, 64), whole);
  FAILS(DMA_CLOSED, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(good, empty);
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy(queue, copies, 1, NULL));
  copies[0] = copy(good, whole);
  copies[1] = copy(huge, whole);
  FAILS(DMA_OUT_OF_RANGE, dma_queue_copy(queue, copies, 2, &count));
  CHECK(count == 1);
  OK(dma_queue_wait_for(queue, 1, 120000, &done));

  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy_list(queue, NULL, 1, &whole, 1, 2));
  FAILS(DMA_LENGTH_MISMATCH, dma_queue_copy_list(queue, NULL, 0, &whole, 1, 2));
  FAILS(DMA_OUT_OF_RANGE, dma_queue_copy_list(queue, &good, SIZE_MAX, &whole, 1, 2));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy_to_both(queue, &good, &whole, NULL, 2));
  FAILS(DMA_OVERLAP, dma_queue_copy_to_both(queue, &good, &whole, &whole, 2));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_fill(queue, &whole, 1, NULL, 2));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_fill(queue, NULL, 1, pattern, 2));
  FAILS(DMA_OUT_OF_RANGE, dma_queue_fill(queue, &whole, SIZE_MAX, pattern, 2));
  FAILS(DMA_OUT_OF_RANGE, dma_queue_fill(queue, &huge, 1, pattern, 2));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_compare(queue, &good, NULL, 2));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_crc32c(queue, NULL, 0, 2));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_crc32c(queue, &empty, 0, 2));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_copy_crc32c(queue, &good, NULL, 0, 2));
  FAILS(DMA_CLOSED, dma_queue_fence(gone));
  FAILS(DMA_CLOSED, dma_queue_flush(gone));
  FAILS(DMA_NOT_FOUND, dma_queue_cancel(queue, 2));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_poll(queue, &done, 1, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_poll(queue, NULL, 1, &count));
  FAILS(DMA_OUT_OF_RANGE, dma_queue_poll(queue, &done, SIZE_MAX, &count));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_wait(queue, &done, 0, 0, &count));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_wait(queue, NULL, 1, 0, &count));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_wait_for_room(queue, &done, 1, 0, NULL));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_wait_for_room(queue, NULL, 1, 0, &count));
  FAILS(DMA_CLOSED, dma_queue_wait_for_room(gone, &done, 1, 0, &count));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_wait_for(queue, 2, 0, NULL));
  FAILS(DMA_NOT_FOUND, dma_queue_wait_for(queue, 2, 0, &done));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_descriptor(queue, NULL));
  FAILS(DMA_CLOSED, dma_queue_descriptor(gone, &fd));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_arm(queue, &ready));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_counters(queue, NULL));
  counters.size = 1;
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_counters(queue, &counters));
  FAILS(DMA_CLOSED, dma_queue_depth(gone, NULL, NULL));
  FAILS(DMA_CLOSED, dma_queue_stalled(gone, &counters.full));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_stalled(queue, NULL));

  FAILS(DMA_INVALID_ARGUMENT, dma_batch_create(NULL, 1, &batch));
  FAILS(DMA_INVALID_ARGUMENT, dma_batch_create(copies, 0, &batch));
  FAILS(DMA_INVALID_ARGUMENT, dma_batch_create(copies, 1, NULL));
  FAILS(DMA_OUT_OF_RANGE, dma_batch_create(copies, 2, &batch));
  copies[1] = copy(good, range(foreign, 0, 64));
  OK(dma_batch_create(copies + 1, 1, &other));
  FAILS(DMA_WRONG_ENGINE, dma_queue_submit(queue, other, 3));
  FAILS(DMA_IN_USE, dma_region_close(foreign));
  OK(dma_batch_close(other));
  FAILS(DMA_CLOSED, dma_batch_close(other));
  FAILS(DMA_CLOSED, dma_queue_submit(queue, other, 3));
  FAILS(DMA_INVALID_ARGUMENT, dma_queue_submit(queue, batch_of(0), 3));
  OK(dma_batch_create(copies, 1, &taken));
  OK(dma_queue_submit(queue, taken, 4));
  FAILS(DMA_IN_USE, dma_queue_submit(queue, taken, 4));
  FAILS(DMA_IN_USE, dma_batch_close(taken));
  FAILS(DMA_IN_USE, dma_region_close(a));
  OK(dma_queue_wait_for(queue, 4, 120000, &done));
  OK(dma_batch_close(taken));

  OK(dma_queue_stop(queue, 1000));
  OK(dma_queue_stop(queue, 1000));
  FAILS(DMA_CLOSED, dma_queue_copy(queue, copies, 1, NULL));
  FAILS(DMA_CLOSED, dma_queue_fill(queue, &whole, 1, pattern, 2));
  FAILS(DMA_CLOSED, dma_queue_flush(queue));
  FAILS(DMA_CLOSED, dma_queue_descriptor(queue, &fd));
  FAILS(DMA_CLOSED, dma_queue_arm(queue, &ready));
  FAILS(DMA_CLOSED, dma_queue_wait_for_room(queue, &done, 1, 0, &count));
  OK(dma_queue_poll(queue, &done, 1, &count));
  OK(dma_queue_close(queue, 1000));
  FAILS(DMA_CLOSED, dma_queue_close(queue, 1000));
  OK(dma_region_close(a));
  OK(dma_region_close(b));
  OK(dma_region_close(foreign));
  OK(dma_region_close(reader));
}

/* A program that never receives completions fills its queue. */
static void unreceived(dma_engine engine, uint32_t lanes) {
  dma_queue_options options;
  dma_queue queue;
  dma_region src, dst;
  dma_copy one;
  dma_completion done;
  dma_status status = DMA_OK;
  size_t depth, available, count, accepted = 0;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.depth = 4;
  options.lanes = lanes;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_region_allocate(engine, 64, NULL, &src));
  OK(dma_region_allocate(engine, 64, NULL, &dst));
  OK(dma_queue_depth(queue, &depth, &available));
  CHECK(available == depth);
  one = copy(range(src, 0, 64), range(dst, 0, 64));
  while (status == DMA_OK && accepted <= depth) {
    status = dma_queue_copy(queue, &one, 1, NULL);
    accepted += status == DMA_OK;
    OK(dma_queue_poll(queue, NULL, 0, &count));
  }
  CHECK(status == DMA_QUEUE_FULL && accepted == depth);
  OK(dma_queue_depth(queue, &depth, &available));
  CHECK(available == 0);
  OK(dma_queue_wait(queue, &done, 1, 120000, &count));
  OK(dma_queue_depth(queue, NULL, &available));
  CHECK(available == 1);
  OK(dma_queue_wait_for_room(queue, &done, 1, 0, &count));
  CHECK(count == 0);
  OK(dma_queue_copy(queue, &one, 1, NULL));
  FAILS(DMA_QUEUE_FULL, dma_queue_copy(queue, &one, 1, NULL));
  FAILS(lanes ? DMA_TIMED_OUT : DMA_INVALID_ARGUMENT, dma_queue_wait_for_room(queue, NULL, 0, 0, &count));
  OK(dma_queue_wait_for_room(queue, &done, 1, 120000, &count));
  CHECK(count == 1 && done.status == DMA_OK);
  OK(dma_queue_copy(queue, &one, 1, NULL));
  OK(dma_queue_close(queue, 20000));
  OK(dma_region_close(src));
  OK(dma_region_close(dst));
}

/* dma_queue_arm counts no completion that was cancelled, and frees the operation's regions and room. */
static void cancelled(const char *name, uint32_t lanes) {
  dma_engine engine;
  dma_queue_options options;
  dma_queue queue;
  dma_region src, dst;
  dma_completion done[8];
  struct pollfd sleeper;
  size_t i, count, ready = 0;
  OK(dma_open(name, &engine));
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.depth = 8;
  options.lanes = lanes;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_region_allocate(engine, 64, NULL, &src));
  OK(dma_region_allocate(engine, 64, NULL, &dst));
  OK(dma_queue_descriptor(queue, &sleeper.fd));
  sleeper.events = POLLIN;
  for (i = 0; i < 8; i++) {
    dma_copy one = copy(range(src, i, 1), range(dst, i, 1));
    one.token = i;
    OK(dma_queue_copy(queue, &one, 1, NULL));
  }
  OK(dma_queue_arm(queue, &ready));
  while (ready < 8) {
    CHECK(poll(&sleeper, 1, 60000) == 1);
    OK(dma_queue_arm(queue, &ready));
  }
  for (i = 0; i < 3; i++)
    OK(dma_queue_cancel(queue, i));
  OK(dma_queue_arm(queue, &ready));
  CHECK(ready == 5);
  OK(dma_queue_poll(queue, done, 2, &count));
  CHECK(count == 2 && done[0].token >= 3 && done[1].token >= 3);
  for (i = 3; i < 8; i++)
    if (i != done[0].token && i != done[1].token)
      OK(dma_queue_cancel(queue, i));
  OK(dma_queue_arm(queue, &ready));
  CHECK(ready == 0);
  /* An operation whose completion was cancelled makes room when it ends. */
  for (i = 0; i < 8; i++) {
    dma_copy one = copy(range(src, i, 1), range(dst, i, 1));
    one.token = i;
    OK(dma_queue_copy(queue, &one, 1, NULL));
    OK(dma_queue_cancel(queue, i));
  }
  OK(dma_queue_wait_for_room(queue, done, 8, 60000, &count));
  OK(dma_queue_depth(queue, NULL, &ready));
  CHECK(count == 0 && ready > 0);
  OK(dma_queue_wait(queue, done, 8, 60000, &count));
  CHECK(count == 0);
  OK(dma_region_close(src));
  OK(dma_region_close(dst));
  OK(dma_queue_poll(queue, done, 8, &count));
  CHECK(count == 0);
  OK(dma_queue_close(queue, 1000));
  OK(dma_close(engine));
}

/* Destructors of a thread's data, which run after the destructors of the library's data. */
static void at_the_end_of_a_thread(void *queue) {
  dma_failure failure;
  size_t count;
  OK(dma_queue_close(*(dma_queue *)queue, 1000));
  FAILS(DMA_CLOSED, dma_queue_close(*(dma_queue *)queue, 1000));
  CHECK(dma_last_failures(&failure, 1, &count) == DMA_OK && count == 0);
}

static pthread_key_t key;

static void *thread_with_a_queue(void *engine) {
  static dma_queue queue;
  OK(dma_queue_open(*(dma_engine *)engine, NULL, &queue));
  FAILS(DMA_INVALID_ARGUMENT, dma_close(engine_of(0)));
  CHECK(pthread_setspecific(key, &queue) == 0);
  return NULL;
}

static void threads(dma_engine engine) {
  pthread_t thread;
  CHECK(pthread_key_create(&key, at_the_end_of_a_thread) == 0);
  CHECK(pthread_create(&thread, NULL, thread_with_a_queue, &engine) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
  dma_engine engine, other;
  dma_error error;
  dma_failure failure;
  size_t count;
  error.size = sizeof error;
  CHECK(dma_last_error(&error) == DMA_OK && error.status == DMA_OK && error.text[0] == '\0');
  CHECK(dma_last_error(NULL) == DMA_INVALID_ARGUMENT);
  error.size = 7;
  CHECK(dma_last_error(&error) == DMA_INVALID_ARGUMENT);
  CHECK(dma_last_failures(&failure, 1, NULL) == DMA_INVALID_ARGUMENT);
  CHECK(dma_last_failures(NULL, 1, &count) == DMA_INVALID_ARGUMENT);
  OK(dma_open("cpu", &engine));
  OK(dma_open("cpu", &other));
  engines(engine);
  reports();
  regions(engine);
  submissions(engine, other, 0);
  submissions(engine, other, 2);
  unreceived(engine, 0);
  unreceived(engine, 2);
  cancelled("sim:seed=1", 0);
  cancelled("sim:seed=1", 2);
  threads(engine);
  OK(dma_close(engine));
  OK(dma_close(other));
  puts(checks_failed ? "wrong" : "right");
  return checks_failed;
}
