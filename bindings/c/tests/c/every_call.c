/* Calls every function of dma.h on each engine that the arguments name, on both kinds of queue. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 64 * 1024, TIMEOUT_MS = 120000 };

static dma_range range(dma_region region, size_t offset, size_t len) {
  dma_range r;
  r.region = region;
  r.offset = offset;
  r.len = len;
  return r;
}

/* Waits for the only operation in flight, and returns its result. */
static uint64_t result_of(dma_queue queue, uint64_t token) {
  dma_completion done;
  size_t count = 0;
  memset(&done, 0, sizeof done);
  OK(dma_queue_wait(queue, &done, 1, TIMEOUT_MS, &count));
  CHECK(count == 1 && done.token == token && done.status == DMA_OK && done.native == 0);
  return done.result;
}

static void release(void *context) { ++*(int *)context; }

static void describe(dma_engine engine) {
  dma_engine_info info;
  char text[16];
  size_t len = 0;
  memset(&info, 0xff, sizeof info);
  info.size = sizeof info;
  OK(dma_engine_describe(engine, &info));
  CHECK(info.size == sizeof info && info.backend[0] != '\0' && info.max_transfer >= 64 && info.max_segments >= 1);
  CHECK(info.default_queue_depth >= 1 && info.max_queue_depth >= info.default_queue_depth);
  OK(dma_engine_explain(engine, text, sizeof text, &len));
  CHECK(strlen(text) == (len < sizeof text ? len : sizeof text - 1));
}

/* Checks completions of the 8 copies, and returns their number. */
static size_t copies_that_ended(const dma_completion *done, size_t count) {
  size_t i;
  for (i = 0; i < count; i++)
    CHECK(done[i].status == DMA_OK && done[i].token >= 100 && done[i].token < 108 && done[i].result == 0);
  return count;
}

static void operations(dma_engine engine, uint32_t lanes) {
  dma_queue_options options;
  dma_queue queue;
  dma_region a, b, c;
  dma_region_info at_a, at_b, at_c;
  dma_copy copies[8];
  dma_completion done[8];
  dma_range lists[4];
  dma_counters counters;
  dma_batch batch;
  unsigned char *src, *dst, *also;
  const uint8_t pattern[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  size_t i, count, received = 0, accepted = 99, depth = 0, available = 0, ready = 0;
  uint64_t stalled = 1;
  int fd = -1, round;
  dma_status status;

  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.lanes = lanes;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_region_allocate(engine, LEN, NULL, &a));
  OK(dma_region_allocate(engine, LEN, NULL, &b));
  OK(dma_region_allocate(engine, LEN, NULL, &c));
  at_a.size = at_b.size = at_c.size = sizeof at_a;
  OK(dma_region_describe(a, &at_a));
  OK(dma_region_describe(b, &at_b));
  OK(dma_region_describe(c, &at_c));
  CHECK(at_a.len == LEN && at_a.rights == (DMA_READ | DMA_WRITE) && at_a.memory && at_b.memory && at_c.memory);
  src = (unsigned char *)at_a.memory;
  dst = (unsigned char *)at_b.memory;
  also = (unsigned char *)at_c.memory;
  for (i = 0; i < LEN; i++)
    src[i] = (unsigned char)(i * 7 >> 3);

  /* Copies, each with its token. */
  for (i = 0; i < 8; i++) {
    copies[i].src = range(a, i * 8192, 8192);
    copies[i].dst = range(b, (7 - i) * 8192, 8192);
    copies[i].token = 100 + i;
  }
  OK(dma_queue_depth(queue, &depth, &available));
  CHECK(depth >= 1 && available == depth);
  OK(dma_queue_stalled(queue, &stalled));
  CHECK(stalled == 0);
  for (i = 0; i < 8; i += accepted) {
    OK(dma_queue_wait_for_room(queue, done, 8, TIMEOUT_MS, &count));
    received += copies_that_ended(done, count);
    status = dma_queue_copy(queue, copies + i, 8 - i, &accepted);
    CHECK((status == DMA_OK || status == DMA_QUEUE_FULL) && accepted > 0);
  }
  OK(dma_queue_flush(queue));
  while (received < 8 && !checks_failed) {
    OK(dma_queue_wait(queue, done, 8, TIMEOUT_MS, &count));
    received += copies_that_ended(done, count);
  }
  for (i = 0; i < 8; i++)
    CHECK(memcmp(src + i * 8192, dst + (7 - i) * 8192, 8192) == 0);

  /* Lists, two destinations, fills, and operations with results. */
  memset(dst, 0, LEN);
  lists[0] = range(a, 10, 5000);
  lists[1] = range(a, 9000, 1000);
  lists[2] = range(b, 1, 4000);
  lists[3] = range(b, 5000, 2000);
  OK(dma_queue_copy_list(queue, lists, 2, lists + 2, 2, 1));
  CHECK(result_of(queue, 1) == 0);
  CHECK(memcmp(dst + 1, src + 10, 4000) == 0 && memcmp(dst + 5000, src + 4010, 1000) == 0);
  CHECK(memcmp(dst + 6000, src + 9000, 1000) == 0);
  lists[0] = range(a, 0, LEN);
  lists[1] = range(b, 0, LEN);
  lists[2] = range(c, 0, LEN);
  OK(dma_queue_copy_to_both(queue, &lists[0], &lists[1], &lists[2], 2));
  CHECK(result_of(queue, 2) == 0 && memcmp(src, dst, LEN) == 0 && memcmp(src, also, LEN) == 0);
  OK(dma_queue_compare(queue, &lists[1], &lists[2], 3));
  CHECK(result_of(queue, 3) == DMA_EQUAL);
  dst[12345] ^= 1;
  OK(dma_queue_compare(queue, &lists[1], &lists[2], 4));
  CHECK(result_of(queue, 4) == 12345);
  lists[3] = range(b, 7, 1001);
  OK(dma_queue_fill(queue, &lists[3], 1, pattern, 5));
  CHECK(result_of(queue, 5) == 0 && dst[7] == 1 && dst[14] == 8 && dst[1007] == 1);
  memcpy(src, "123456789", 9);
  lists[0] = range(a, 0, 9);
  OK(dma_queue_crc32c(queue, &lists[0], 0, 6));
  CHECK(result_of(queue, 6) == 0xe3069283u);
  lists[1] = range(b, 0, 9);
  OK(dma_queue_copy_crc32c(queue, &lists[0], &lists[1], 0, 7));
  CHECK(result_of(queue, 7) == 0xe3069283u && memcmp(dst, "123456789", 9) == 0);

  /* Two destinations and the CRC: two operations that read the same source. */
  if (depth >= 2) {
    memset(dst, 0, 9);
    memset(also, 0, 9);
    lists[2] = range(c, 0, 9);
    OK(dma_queue_copy_crc32c(queue, &lists[0], &lists[1], 0, 8));
    OK(dma_queue_copy_list(queue, &lists[0], 1, &lists[2], 1, 9));
    OK(dma_queue_wait_for(queue, 8, TIMEOUT_MS, done));
    OK(dma_queue_wait_for(queue, 9, TIMEOUT_MS, done + 1));
    CHECK(done[0].result == 0xe3069283u && done[1].status == DMA_OK);
    CHECK(memcmp(dst, "123456789", 9) == 0 && memcmp(also, "123456789", 9) == 0);
  }

  /* A prepared batch, submitted repeatedly. */
  OK(dma_batch_create(copies, 8, &batch));
  for (round = 0; round < 3; round++) {
    memset(dst, round, LEN);
    OK(dma_queue_submit(queue, batch, 50 + (uint64_t)round));
    if (round == 0) {
      status = dma_queue_submit(queue, batch, 99);
      CHECK(status == DMA_IN_USE);
      FAILS(DMA_IN_USE, dma_batch_close(batch));
      FAILS(DMA_IN_USE, dma_region_close(a));
    }
    result_of(queue, 50 + (uint64_t)round);
    for (i = 0; i < 8; i++)
      CHECK(memcmp(src + i * 8192, dst + (7 - i) * 8192, 8192) == 0);
  }
  FAILS(DMA_IN_USE, dma_region_close(a));
  OK(dma_batch_close(batch));

  /* Fences, waits for one operation, and cancelled completions. */
  if (depth >= 3) {
    copies[0].src = range(a, 0, 4096);
    copies[0].dst = range(b, 0, 4096);
    copies[1].src = range(b, 0, 4096);
    copies[1].dst = range(c, 0, 4096);
    OK(dma_queue_copy(queue, copies, 1, &accepted));
    CHECK(accepted == 1);
    if (lanes) {
      FAILS(DMA_UNSUPPORTED, dma_queue_fence(queue));
      OK(dma_queue_wait_for(queue, 100, TIMEOUT_MS, done));
    } else {
      OK(dma_queue_fence(queue));
    }
    OK(dma_queue_copy(queue, copies + 1, 1, NULL));
    OK(dma_queue_wait_for(queue, 101, TIMEOUT_MS, &done[1]));
    CHECK(done[1].token == 101 && done[1].status == DMA_OK && memcmp(src, also, 4096) == 0);
    if (!lanes)
      CHECK(result_of(queue, 100) == 0);
    OK(dma_queue_copy(queue, copies, 1, NULL));
    OK(dma_queue_cancel(queue, 100));
    FAILS(DMA_NOT_FOUND, dma_queue_cancel(queue, 100));
    FAILS(DMA_NOT_FOUND, dma_queue_wait_for(queue, 100, 0, done));
    OK(dma_queue_wait(queue, done, 8, TIMEOUT_MS, &count));
    CHECK(count == 0);
  }

  /* A descriptor to sleep on. */
  status = dma_queue_descriptor(queue, &fd);
  CHECK(status == DMA_OK || status == DMA_UNSUPPORTED);
  if (status == DMA_OK) {
    OK(dma_queue_copy(queue, copies, 1, NULL));
    for (count = 0; count == 0;) {
      struct pollfd sleeper;
      sleeper.fd = fd;
      sleeper.events = POLLIN;
      OK(dma_queue_arm(queue, &ready));
      if (ready == 0)
        CHECK(poll(&sleeper, 1, TIMEOUT_MS) == 1);
      OK(dma_queue_poll(queue, done, 8, &count));
    }
    CHECK(count == 1 && done[0].token == 100 && done[0].status == DMA_OK);
  }
  OK(dma_queue_poll(queue, NULL, 0, &count));
  CHECK(count == 0);

  counters.size = sizeof counters;
  OK(dma_queue_counters(queue, &counters));
  CHECK(counters.submitted == counters.completed && counters.in_flight == 0 && counters.failed == 0);
  OK(dma_queue_copy(queue, copies, 1, NULL));
  OK(dma_queue_stop(queue, TIMEOUT_MS));
  FAILS(DMA_CLOSED, dma_queue_copy(queue, copies, 1, NULL));
  OK(dma_queue_poll(queue, done, 8, &count));
  CHECK(count == 1 && done[0].status == DMA_OK);
  OK(dma_queue_close(queue, TIMEOUT_MS));
  OK(dma_region_close(a));
  OK(dma_region_close(b));
  OK(dma_region_close(c));
}

static void registration(dma_engine engine, const dma_engine_info *info) {
  const size_t align = info->register_alignment;
  /* The CPU does not execute a copy of this length within the call. */
  const size_t len = ((1 << 18) + align - 1) / align * align;
  unsigned char *mine = NULL;
  int released = 0;
  dma_region whole, owned, part;
  dma_queue queue;
  dma_copy copy;
  dma_completion done;
  char bytes[10];
  dma_status status;

  if (posix_memalign((void **)&mine, align < 4096 ? 4096 : align, 2 * len))
    abort();
  memset(mine, 3, 2 * len);
  status = dma_region_register(engine, mine, len, DMA_READ | DMA_WRITE, &whole);
  if (!(info->capabilities & DMA_CAN_REGISTER)) {
    CHECK(status == DMA_UNSUPPORTED);
    free(mine);
    return;
  }
  if (status == DMA_ACCESS_DENIED) { /* The device can reach only special memory. */
    free(mine);
    return;
  }
  OK(status);
  OK(dma_region_register_owned(engine, mine + len, len, DMA_READ | DMA_WRITE, release, &released, &owned));
  OK(dma_queue_open(engine, NULL, &queue));
  mine[1000] = 4; /* The program may use its memory. */
  copy.src = range(whole, 0, len);
  copy.dst = range(owned, 0, len);
  copy.token = 5;
  OK(dma_queue_copy(queue, &copy, 1, NULL));
  FAILS(DMA_IN_USE, dma_region_close(whole));
  OK(dma_region_close(owned)); /* The copy continues, and the memory is released after it. */
  FAILS(DMA_CLOSED, dma_region_close(owned));
  CHECK(released == 0);
  OK(dma_queue_wait_for(queue, 5, TIMEOUT_MS, &done));
  CHECK(released == 1 && mine[len + 1000] == 4 && mine[2 * len - 1] == 3);
  OK(dma_region_write(whole, 7, "window", 6));
  OK(dma_region_read(whole, 5, bytes, 10));
  CHECK(memcmp(bytes, "\3\3window\3\3", 10) == 0);
  OK(dma_region_close(whole));
  OK(dma_region_register(engine, mine, len, DMA_READ, &part));
  FAILS(DMA_ACCESS_DENIED, dma_region_write(part, 0, "x", 1));
  OK(dma_region_close(part));
  OK(dma_queue_close(queue, TIMEOUT_MS));
  free(mine);
}

/* Waiting flushes, even if a short copy was done at once: the long copy behind it ends while the queue is polled. */
static void waiting_flushes(dma_engine engine, int wait_for) {
  dma_region a, b;
  dma_queue queue;
  dma_copy copies[2];
  dma_completion done[2];
  size_t accepted = 0, received = 0, count = 0;
  long polls;
  OK(dma_region_allocate(engine, LEN, NULL, &a));
  OK(dma_region_allocate(engine, LEN, NULL, &b));
  OK(dma_queue_open(engine, NULL, &queue));
  copies[0].src = range(a, 0, 8);
  copies[0].dst = range(b, 0, 8);
  copies[1].src = range(a, 8, LEN - 8);
  copies[1].dst = range(b, 8, LEN - 8);
  copies[0].token = copies[1].token = 7;
  (void)dma_queue_copy(queue, copies, 2, &accepted);
  if (wait_for) {
    OK(dma_queue_wait_for(queue, 7, TIMEOUT_MS, done));
    received = 1;
  } else {
    OK(dma_queue_wait(queue, done, 2, TIMEOUT_MS, &received));
  }
  for (polls = 0; received < accepted && polls < 10L * TIMEOUT_MS; polls++) {
    const struct timespec pause = {0, 10000};
    OK(dma_queue_poll(queue, done, 2, &count));
    received += count;
    (void)nanosleep(&pause, NULL);
  }
  CHECK(accepted >= 1 && received == accepted);
  OK(dma_queue_close(queue, TIMEOUT_MS));
  OK(dma_region_close(a));
  OK(dma_region_close(b));
}

static void exports(dma_engine engine, const dma_engine_info *info) {
  dma_memory_options options;
  dma_region local, remote, buffer;
  dma_export exported;
  dma_queue queue;
  dma_copy copy;
  dma_completion done;
  unsigned char *bytes = NULL;
  size_t len = 0;
  char text[4];
  dma_status status;

  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.export_rights = DMA_READ;
  status = dma_region_allocate(engine, 10000, &options, &local);
  if (!(info->capabilities & DMA_CAN_EXPORT)) {
    CHECK(status == DMA_UNSUPPORTED);
    return;
  }
  OK(status);
  OK(dma_region_write(local, 100, "abcd", 4));
  FAILS(DMA_ACCESS_DENIED, dma_region_export(local, 0, 10000, DMA_WRITE, &exported));
  OK(dma_region_export(local, 100, 4, DMA_READ, &exported));
  FAILS(DMA_OUT_OF_RANGE, dma_export_descriptor(exported, NULL, 0, &len));
  bytes = malloc(len);
  OK(dma_export_descriptor(exported, bytes, len, &len));
  FAILS(DMA_IN_USE, dma_region_close(local));
  if (info->capabilities & DMA_CAN_IMPORT) {
    OK(dma_queue_open(engine, NULL, &queue));
    OK(dma_region_allocate(engine, 4, NULL, &buffer));
    OK(dma_region_import(engine, bytes, len, &remote));
    FAILS(DMA_UNSUPPORTED, dma_region_read(remote, 0, text, 4));
    copy.src = range(remote, 0, 4);
    copy.dst = range(buffer, 0, 4);
    copy.token = 1;
    OK(dma_queue_copy(queue, &copy, 1, NULL));
    CHECK(result_of(queue, 1) == 0);
    OK(dma_region_read(buffer, 0, text, 4));
    CHECK(memcmp(text, "abcd", 4) == 0);
    OK(dma_export_revoke(exported, TIMEOUT_MS));
    OK(dma_queue_copy(queue, &copy, 1, NULL));
    OK(dma_queue_wait_for(queue, 1, TIMEOUT_MS, &done));
    CHECK(done.status == DMA_REVOKED);
    OK(dma_queue_close(queue, TIMEOUT_MS));
    OK(dma_region_close(buffer));
    OK(dma_region_close(remote));
  } else {
    FAILS(DMA_UNSUPPORTED, dma_region_import(engine, bytes, len, &remote));
    OK(dma_export_revoke(exported, TIMEOUT_MS));
  }
  FAILS(DMA_CLOSED, dma_export_revoke(exported, TIMEOUT_MS));
  OK(dma_region_close(local));
  free(bytes);
}

static void device_memory(dma_engine engine, const dma_engine_info *info) {
  dma_memory_options options;
  dma_region region;
  dma_region_info at;
  dma_status status;
  int fd = -1;
  uint64_t offset = 0;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.place = DMA_PLACE_DEVICE;
  status = dma_region_allocate(engine, 4096, &options, &region);
  CHECK(status == (info->capabilities & DMA_CAN_ALLOCATE_DEVICE ? DMA_OK : DMA_UNSUPPORTED));
  if (status == DMA_OK) {
    at.size = sizeof at;
    OK(dma_region_describe(region, &at));
    CHECK(at.len == 4096);
    status = dma_region_dmabuf(region, &fd, &offset);
    CHECK(status == DMA_UNSUPPORTED || (status == DMA_OK && close(fd) == 0));
    OK(dma_region_close(region));
  }
  if (!(info->capabilities & DMA_CAN_REGISTER_DEVICE))
    FAILS(DMA_UNSUPPORTED, dma_region_register_device(engine, 4096, 4096, DMA_READ, &region));
  if (!(info->capabilities & DMA_CAN_REGISTER_DMABUF))
    CHECK(dma_region_register_dmabuf(engine, STDIN_FILENO, 0, 4096, DMA_READ, &region) != DMA_OK);
}

/* The regions of a short copy close before its completion is received, or are in use. In both cases the completion is
 * reported. */
static void short_copies(dma_engine engine, uint32_t lanes) {
  dma_queue_options options;
  dma_queue queue;
  dma_region src, dst;
  dma_copy copy;
  dma_completion done;
  dma_status closed;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.lanes = lanes;
  OK(dma_queue_open(engine, &options, &queue));
  OK(dma_region_allocate(engine, 64, NULL, &src));
  OK(dma_region_allocate(engine, 64, NULL, &dst));
  copy.src = range(src, 0, 64);
  copy.dst = range(dst, 0, 64);
  copy.token = 5;
  OK(dma_queue_copy(queue, &copy, 1, NULL));
  closed = dma_region_close(src);
  CHECK(closed == DMA_OK || closed == DMA_IN_USE);
  OK(dma_queue_wait_for(queue, 5, TIMEOUT_MS, &done));
  CHECK(done.status == DMA_OK && done.token == 5);
  OK(dma_region_close(dst));
  if (closed == DMA_OK)
    FAILS(DMA_CLOSED, dma_queue_copy(queue, &copy, 1, NULL));
  else
    OK(dma_region_close(src));
  OK(dma_queue_close(queue, TIMEOUT_MS));
}

static void on_engine(const char *name) {
  dma_engine engine;
  dma_engine_info info;
  dma_status status = dma_open(name, &engine);
  if (status != DMA_OK) {
    OK(status);
    return;
  }
  info.size = sizeof info;
  OK(dma_engine_describe(engine, &info));
  describe(engine);
  operations(engine, 0);
  operations(engine, 1);
  waiting_flushes(engine, 0);
  waiting_flushes(engine, 1);
  short_copies(engine, 0);
  short_copies(engine, 1);
  registration(engine, &info);
  exports(engine, &info);
  device_memory(engine, &info);
  OK(dma_close(engine));
  printf("%s: %s\n", name, checks_failed ? "wrong" : "right");
}

static void reports(void) {
  dma_report report;
  dma_report_entry entry;
  size_t count = 0, i, found = 0;
  OK(dma_doctor("cpu", &report));
  OK(dma_report_count(report, &count));
  CHECK(count > 0);
  for (i = 0; i < count; i++) {
    entry.size = sizeof entry;
    OK(dma_report_read(report, i, &entry));
    /* A warning, such as that huge pages are off, has a remedy. */
    found += strcmp(entry.name, "cpu") == 0 && entry.usable && (entry.verdict == DMA_VERDICT_OK || entry.remedy[0] != '\0');
  }
  CHECK(found == count);
  FAILS(DMA_OUT_OF_RANGE, dma_report_read(report, count, &entry));
  OK(dma_report_close(report));
  OK(dma_discover(&report));
  OK(dma_report_count(report, &count));
  CHECK(count > 1);
  OK(dma_report_close(report));
}

int main(int argc, char **argv) {
  dma_failure failure;
  size_t count = 1;
  int i;
  CHECK(dma_abi_version() == DMA_ABI_VERSION);
  CHECK(strchr(dma_version(), '.') != NULL);
  CHECK(dma_status_retry(DMA_QUEUE_FULL) == DMA_RETRY_AFTER_PROGRESS);
  CHECK(dma_status_retry(DMA_ABORTED) == DMA_RETRY_NOW && dma_status_retry(-7) == DMA_RETRY_NEVER);
  CHECK(strcmp(dma_status_text(DMA_OK), "done") == 0 && strcmp(dma_status_text(DMA_QUEUE_FULL), "queue full") == 0);
  OK(dma_last_failures(&failure, 1, &count));
  CHECK(count == 0);
  reports();
  for (i = 1; i < argc; i++)
    on_engine(argv[i]);
  return checks_failed;
}
