// The objects that NIXL stores for the backend, and the device that executes transfers.
#pragma once
#include "failures.hpp"
#include "peer.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dma_nixl {

using Clock = std::chrono::steady_clock;

// Returns whether `len` bytes from `address` on contain a range.
inline bool contains(uintptr_t address, size_t len, const Range &range) {
  return range.address >= address && range.address - address <= len && range.len <= len - (range.address - address);
}

// Memory that the user has registered.
struct Region {
  uintptr_t address;
  size_t len;
  MemoryType type;
  dma_region handle{};
  // The region for peers on other hosts, if they can reach this memory.
  dma_region remote_handle{};
  dma_export exported{};
  std::string descriptor = {};
  // Why peers on other hosts cannot reach device memory.
  std::string remote_refusal = {};
  // For device memory: a number that peers of this host read before and after they use the memory. It is 0 when the memory
  // is deregistered.
  std::unique_ptr<std::atomic<uint64_t>> mark = {};
  uint64_t id = 0;
  // The region of the CPU's engine, if transfers go over to the CPU after the device was lost.
  dma_region cpu_handle{};
  // True if a device that never answered may still write to this memory. The backend's mutex guards it.
  bool is_abandoned = false;
};

// A peer's memory that a device of this process accesses: on another host, or on a GPU of this host.
struct Import {
  explicit Import(dma_region handle) : handle(handle) {}
  Import(const Import &) = delete;
  Import &operator=(const Import &) = delete;
  ~Import() {
    if (dma_region_close(handle) != DMA_OK) {
      log(last_error());
      // The device may still access the memory, so it stays mapped.
      new std::shared_ptr<void>(owner);
    }
  }
  const dma_region handle;
  // For device memory: the mapping of the memory, and the address and the value of the region's mark in the peer.
  std::shared_ptr<void> owner = {};
  uintptr_t mark = 0;
  uint64_t id = 0;
};

// The object that NIXL stores for memory: a region of this process, or memory of a peer.
struct Piece final : Memory {
  std::shared_ptr<Region> region; // null for a peer's memory
  std::shared_ptr<Peer> peer;
  // For a peer on another host, and for device memory of a peer; null if the import failed, with the reason in `refusal`.
  std::shared_ptr<Import> import;
  Outcome refusal{};
  uintptr_t address;
  size_t len;
  MemoryType type;

  bool contains(const Range &range) const { return dma_nixl::contains(address, len, range); }
};

// Names the part of the plugin that must act next for a transfer to continue. WAITING_LIST: the queue is full, or the
// transfer is tried again later.
enum class Runner { NONE, DEVICE, WAITING_LIST, THREADS, REMOTE_NOTIFIER };

// A piece of a transfer that has failed and is tried again.
struct FailedPiece {
  size_t index;
  unsigned faults; // Number of failures after which the device advises only a few more attempts.
};

struct Device;

// A transfer. The backend's mutex guards its state.
struct Transfer final : Handle {
  // These members are constant after the preparation.
  Direction direction{};
  std::set<std::shared_ptr<Region>> regions;
  size_t bytes = 0;
  std::shared_ptr<Peer> peer; // null for a transfer within the process
  std::vector<iovec> local, remote;
  Device *device = nullptr; // null for host memory of another process of this host
  std::set<std::shared_ptr<Import>> imports;
  std::string agent;

  // The copies of a transfer that a device executes, and a batch of them.
  std::vector<dma_copy> copies;
  // The number of the first piece of each copy. Adjacent pieces are one copy.
  std::vector<size_t> first_pieces;
  size_t pieces = 0;
  dma_batch batch{};
  // The copies that failed, while they are tried again.
  dma_batch rest{};
  std::vector<FailedPiece> failed;
  unsigned attempts = 0;
  Clock::time_point retry_at{}, posted_at{};

  bool revoked = false; // True if one of its regions was deregistered.
  Status status = NOT_POSTED;
  Runner runner = Runner::NONE;
  bool cancelled = false;
  bool notifies = false;
  std::string message;

  // A copy to or from another process. Threads copy slices of it. The thread that ends the last slice sends the notification.
  Position next{};
  size_t running = 0; // Number of threads that copy a slice or send the notification.
  Outcome failure{};
  Clock::time_point mailbox_deadline{}; // Set when the mailbox is found full.

  // Returns whether a thread can continue the transfer.
  bool has_work() const { return runner == Runner::THREADS && (!next.is_end(local) || running == 0); }
  bool waits_for_mailbox() const { return mailbox_deadline != Clock::time_point{}; }
};

// An engine of dma.h with a queue. Each peer on another host has a queue of its own, because a queue that connects to a host
// that does not answer executes nothing else. The backend's mutex guards the members below `capabilities`.
struct Device {
  std::string name = {};
  dma_engine engine{};
  dma_queue queue{};
  uint32_t capabilities = 0;
  bool is_remote = false;

  std::deque<Transfer *> waiting = {};
  bool is_lost = false, has_failed = false;
  size_t on_device = 0, bytes_on_device = 0;
  Clock::duration idle_for{};
  Clock::time_point last_poll = Clock::now();

  bool is_open() const { return queue.id != 0; }

  bool open_engine(const std::string &engine_name) {
    name = engine_name;
    return dma_open(name.c_str(), &engine) == DMA_OK && describe();
  }

  bool open(const std::string &engine_name) {
    return open_engine(engine_name) && dma_queue_open(engine, nullptr, &queue) == DMA_OK;
  }

  bool describe() {
    dma_engine_info info{};
    info.size = sizeof info;
    const bool described = dma_engine_describe(engine, &info) == DMA_OK;
    capabilities = info.capabilities;
    return described;
  }
};

} // namespace dma_nixl
