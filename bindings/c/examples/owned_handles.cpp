// C++17: handles that close automatically, and failures as exceptions: owned_handles [ENGINE]
// Build: c++ -std=c++17 owned_handles.cpp $(pkg-config --cflags --libs dma)
#include <dma.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// Throws the library's description of a failure, which contains the remedy.
static void check(dma_status status) {
  if (status != DMA_OK) {
    dma_error error{};
    error.size = sizeof error;
    throw std::runtime_error(dma_last_error(&error) == DMA_OK ? error.text : dma_status_text(status));
  }
}

// A handle with the function that closes it.
template <typename Handle, void (*Close)(Handle)> class Owned {
public:
  Owned() = default;
  Owned(Owned &&other) noexcept : handle(std::exchange(other.handle, Handle{})) {}
  Owned &operator=(Owned &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  Owned(const Owned &) = delete;
  Owned &operator=(const Owned &) = delete;
  ~Owned() {
    if (handle.id != 0)
      Close(handle);
  }
  Handle *out() { return &handle; }
  Handle get() const { return handle; }

private:
  Handle handle{};
};

// A region that a device still uses must not be closed, and its memory must not be freed. So a failure ends the program.
static void expect_closed(dma_status status) {
  if (status != DMA_OK) {
    std::fprintf(stderr, "close: %s\n", dma_status_text(status));
    std::abort();
  }
}
static void close_engine(dma_engine engine) { expect_closed(dma_close(engine)); }
static void close_region(dma_region region) { expect_closed(dma_region_close(region)); }
static void close_queue(dma_queue queue) { expect_closed(dma_queue_close(queue, 5000)); }
static void close_batch(dma_batch batch) { expect_closed(dma_batch_close(batch)); }

using Engine = Owned<dma_engine, close_engine>;
using Region = Owned<dma_region, close_region>;
using Queue = Owned<dma_queue, close_queue>;
using Batch = Owned<dma_batch, close_batch>;

// A vector in memory that a device can reach.
class Buffer {
public:
  Buffer(const Engine &engine, std::size_t len) : bytes(len) {
    check(dma_region_register(engine.get(), bytes.data(), len, DMA_READ | DMA_WRITE, region.out()));
  }
  dma_range range(std::size_t offset, std::size_t len) const { return {region.get(), offset, len}; }

  std::vector<unsigned char> bytes;

private:
  Region region; // Closed before the vector is freed.
};

static void run(const char *name) {
  constexpr std::size_t pieces = 64, len = 4096;
  Engine engine;
  check(dma_open(name, engine.out()));
  Buffer from(engine, pieces * len), to(engine, pieces * len);
  std::iota(from.bytes.begin(), from.bytes.end(), static_cast<unsigned char>(1));

  // A batch that reverses the order of the pieces. It is prepared once and submitted three times.
  std::vector<dma_copy> copies;
  for (std::size_t i = 0; i < pieces; i++)
    copies.push_back({from.range(i * len, len), to.range((pieces - 1 - i) * len, len), 0});
  Batch batch;
  check(dma_batch_create(copies.data(), copies.size(), batch.out()));
  Queue queue;
  check(dma_queue_open(engine.get(), nullptr, queue.out()));
  for (std::uint64_t round = 1; round <= 3; round++) {
    dma_completion done{};
    std::fill(to.bytes.begin(), to.bytes.end(), static_cast<unsigned char>(0));
    check(dma_queue_submit(queue.get(), batch.get(), round));
    check(dma_queue_wait_for(queue.get(), round, 60000, &done));
    check(done.status);
    for (std::size_t i = 0; i < pieces; i++) {
      const auto *piece = &to.bytes[(pieces - 1 - i) * len];
      if (!std::equal(piece, piece + len, &from.bytes[i * len]))
        throw std::runtime_error("wrong bytes");
    }
  }
  std::printf("%zu pieces of %zu bytes, three times\n", pieces, len);
}

int main(int argc, char **argv) {
  try {
    run(argc > 1 ? argv[1] : "cpu");
    return EXIT_SUCCESS;
  } catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return EXIT_FAILURE;
  }
}
