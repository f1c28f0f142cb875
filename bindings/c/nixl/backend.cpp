#include "backend.hpp"

#include "remote_notifier.hpp"
#include "peer.hpp"
#include "threads.hpp"
#include <dma.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace dma_nixl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Copies to other processes up to this many bytes happen within the call, because waking a thread takes longer.
constexpr size_t INLINE_BYTES = 256 << 10;
// A larger copy is divided into slices of this length, each copied by one thread.
constexpr size_t SLICE_BYTES = 1 << 20;
// If a peer's mailbox stays full for this time, sending to it fails.
constexpr milliseconds MAILBOX_TIMEOUT{30'000};
// Maximum number of notifications that the user has not taken. Further notifications wait in the mailbox, and then at the
// senders.
constexpr size_t MAX_NOTIFICATIONS = 1 << 16;
// A gap between two polls counts as at most this time. Otherwise a process that was stopped would consider its device
// stalled.
constexpr milliseconds MAX_GAP{100};

void log(const std::string &text) { std::fprintf(stderr, "dma-nixl: %s\n", text.c_str()); }

// Describes the thread's last failure of dma.h, with its remedy.
std::string last_error() {
  dma_error error{};
  error.size = sizeof error;
  return dma_last_error(&error) == DMA_OK ? error.text : "unknown failure";
}

// Logs a failure of dma.h, and returns its status for NIXL.
Status failure_of(dma_status status) {
  log(last_error());
  switch (status) {
  case DMA_INVALID_ARGUMENT:
  case DMA_OUT_OF_RANGE:
  case DMA_LENGTH_MISMATCH:
  case DMA_OVERLAP:
    return INVALID;
  case DMA_UNSUPPORTED:
    return NOT_SUPPORTED;
  case DMA_ACCESS_DENIED:
  case DMA_PERMISSION_DENIED:
  case DMA_IN_USE:
    return NOT_ALLOWED;
  case DMA_ABORTED:
    return CANCELLED;
  default:
    return BACKEND;
  }
}

// Returns whether `len` bytes from `address` on contain a range.
bool contains(uintptr_t address, size_t len, const Range &range) {
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
};

// A peer's memory on another host.
struct Import {
  explicit Import(dma_region handle) : handle(handle) {}
  Import(const Import &) = delete;
  Import &operator=(const Import &) = delete;
  ~Import() {
    if (dma_region_close(handle) != DMA_OK)
      log(last_error());
  }
  const dma_region handle;
};

// The object that NIXL stores for memory: a region of this process, or memory of a peer.
struct Piece final : Memory {
  std::shared_ptr<Region> region; // null for a peer's memory
  std::shared_ptr<Peer> peer;
  std::shared_ptr<Import> import; // For a peer on another host; null if the import failed, with the reason in `refusal`.
  Outcome refusal{};
  uintptr_t address;
  size_t len;
  MemoryType type;

  bool contains(const Range &range) const { return dma_nixl::contains(address, len, range); }
};

// Names the part of the plugin that must act next for a transfer to continue.
enum class Runner { NONE, DEVICE, QUEUE_IS_FULL, THREADS, REMOTE_NOTIFIER };

struct Device;

// A transfer. The backend's mutex guards its state.
struct Transfer final : Handle {
  // These members are constant after the preparation.
  Direction direction{};
  std::set<std::shared_ptr<Region>> regions;
  size_t bytes = 0;
  std::shared_ptr<Peer> peer; // null for a transfer within the process
  std::vector<iovec> local, remote;
  Device *device = nullptr; // null for another process of this host
  std::set<std::shared_ptr<Import>> imports;
  std::string agent;

  dma_batch batch{};
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

// An engine of dma.h with a queue. The backend's mutex guards the members below `capabilities`.
struct Device {
  std::string name = {};
  dma_engine engine{};
  dma_queue queue{};
  uint32_t capabilities = 0;

  std::deque<Transfer *> waiting = {};
  size_t on_device = 0, bytes_on_device = 0;
  Clock::duration idle_for{};
  Clock::time_point last_poll = Clock::now();

  bool is_open() const { return queue.id != 0; }

  bool open(const std::string &engine_name) {
    name = engine_name;
    return dma_open(name.c_str(), &engine) == DMA_OK && open_queue();
  }

  bool open_queue() {
    dma_engine_info info{};
    info.size = sizeof info;
    const bool opened = dma_engine_describe(engine, &info) == DMA_OK && dma_queue_open(engine, nullptr, &queue) == DMA_OK;
    capabilities = info.capabilities;
    return opened;
  }
};

class Backend final : public Engine {
public:
  explicit Backend(const InitParameters &init) : Engine(init) {
    failed = !open(*init.options);
    if (!failed)
      thread_ = start_thread([this] { run(); });
  }

  ~Backend() override {
    if (thread_.joinable()) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ended_ = true;
      }
      changed_.notify_all();
      wake();
      thread_.join();
    }
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return remote_calls_ == 0; });
    }
    for (Device *device : {&local_device_, &remote_device_})
      if (device->is_open() && dma_queue_close(device->queue, 1000) != DMA_OK)
        log(last_error());
    for (Transfer *transfer : transfers_)
      if (transfer->batch.id != 0)
        (void)dma_batch_close(transfer->batch);
    if (remote_device_.engine.id != local_device_.engine.id && remote_device_.engine.id != 0)
      (void)dma_close(remote_device_.engine);
    if (local_device_.engine.id != 0)
      (void)dma_close(local_device_.engine);
  }

  bool is_remote() const override { return true; }
  bool is_local() const override { return true; }
  bool has_notifications() const override { return true; }

  MemoryTypes memory_types() const override {
    return local_device_.capabilities & DMA_CAN_REGISTER_DEVICE ? MemoryTypes{DRAM, VRAM} : MemoryTypes{DRAM};
  }

  Status register_memory(const DescribedRange &range, const MemoryType &type, Memory *&memory) override {
    Region region{range.address, range.len, type};
    if (type != DRAM && type != VRAM)
      return NOT_SUPPORTED;
    const bool is_shared = type == DRAM && remote_device_.is_open(), has_two = is_shared && remote_device_.engine.id != local_device_.engine.id;
    constexpr uint32_t OWN = DMA_READ | DMA_WRITE, SHARED = OWN | DMA_EXPORT_READ | DMA_EXPORT_WRITE;
    void *const start = reinterpret_cast<void *>(range.address);
    dma_status status = type == VRAM
                            ? dma_region_register_device(local_device_.engine, range.address, range.len, OWN, &region.handle)
                            : dma_region_register(local_device_.engine, start, range.len, is_shared && !has_two ? SHARED : OWN, &region.handle);
    if (status == DMA_OK && is_shared) {
      if (has_two)
        status = dma_region_register(remote_device_.engine, start, range.len, SHARED, &region.remote_handle);
      else
        region.remote_handle = region.handle;
      if (status == DMA_OK)
        status = share(region);
    }
    if (status != DMA_OK) {
      const Status failure = failure_of(status);
      (void)close(region);
      return failure;
    }
    auto piece = std::make_unique<Piece>();
    piece->region = std::make_shared<Region>(std::move(region));
    piece->address = range.address;
    piece->len = range.len;
    piece->type = type;
    std::lock_guard<std::mutex> lock(mutex_);
    regions_.insert(piece->region);
    memory = piece.release();
    return SUCCESS;
  }

  // NIXL ignores a failure of this function, and its user may then free the memory. So this function waits for the transfers
  // that use the region, and closes the batches of prepared transfers that use it.
  Status deregister_memory(Memory *memory) override {
    const std::unique_ptr<Piece> piece(static_cast<Piece *>(memory));
    std::unique_lock<std::mutex> lock(mutex_);
    regions_.erase(piece->region);
    for (Transfer *transfer : std::vector<Transfer *>(transfers_.begin(), transfers_.end())) {
      if (!transfers_.count(transfer) || !transfer->regions.count(piece->region))
        continue;
      transfer->revoked = true;
      wait(lock, *transfer);
      if (transfers_.count(transfer))
        close_batch(*transfer);
    }
    if (close(*piece->region) != DMA_OK) {
      log("the device of engine " + local_device_.name + (remote_device_.is_open() ? " or " + remote_device_.name : "") + " never answered, and may still write to memory that the program is about to "
          "free; the program is ended because of that");
      std::abort();
    }
    return SUCCESS;
  }

  Status connect(const std::string &agent_name) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return agent_name == agent || peers_.count(agent_name) ? SUCCESS : NOT_FOUND;
  }

  Status disconnect(const std::string &agent_name) override {
    // `last` is destroyed after the lock is released, because its destructor waits for the peer's remote notifier.
    std::shared_ptr<Peer> last;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto peer = peers_.find(agent_name);
    if (peer != peers_.end()) {
      last = std::move(peer->second);
      peers_.erase(peer);
    }
    return SUCCESS;
  }

  Status unload(Memory *memory) override {
    delete memory;
    return SUCCESS;
  }

  Status prepare(const Direction &direction, const List<MemoryRange> &local, const List<MemoryRange> &remote,
                 const std::string &agent_name, Handle *&handle, const PostOptions *) const override {
    if (local.size() == 0 || local.size() != remote.size() || direction > WRITE)
      return INVALID;
    auto transfer = std::make_unique<Transfer>();
    transfer->direction = direction;
    transfer->agent = agent_name;
    std::vector<dma_copy> copies;
    for (size_t at = 0; at < local.size(); at++) {
      const auto *ours = static_cast<const Piece *>(local[at].memory), *theirs = static_cast<const Piece *>(remote[at].memory);
      if (!ours || !theirs || !ours->region || local[at].len != remote[at].len || !ours->contains(local[at]) ||
          !theirs->contains(remote[at])) {
        log("piece " + std::to_string(at) + " of a transfer is not within registered memory, or its lengths differ");
        return INVALID;
      }
      if (at > 0 && theirs->peer != transfer->peer)
        return INVALID;
      transfer->peer = theirs->peer;
      transfer->regions.insert(ours->region);
      transfer->bytes += local[at].len;
      if (theirs->peer) {
        if (const Status status = check_peer(agent_name, *theirs, *ours))
          return status;
        if (theirs->import) {
          transfer->imports.insert(theirs->import);
          const dma_range from{ours->region->remote_handle, local[at].address - ours->address, local[at].len};
          const dma_range to{theirs->import->handle, remote[at].address - theirs->address, remote[at].len};
          copies.push_back(direction == WRITE ? dma_copy{from, to, 0} : dma_copy{to, from, 0});
          continue;
        }
        transfer->local.push_back({reinterpret_cast<void *>(local[at].address), local[at].len});
        transfer->remote.push_back({reinterpret_cast<void *>(remote[at].address), remote[at].len});
        continue;
      }
      const std::shared_ptr<Region> target = registered(*theirs, remote[at]);
      if (!target) {
        log("piece " + std::to_string(at) + " of a transfer is in memory that was deregistered");
        return INVALID;
      }
      transfer->regions.insert(target);
      const dma_range from{ours->region->handle, local[at].address - ours->address, local[at].len};
      const dma_range to{target->handle, remote[at].address - target->address, remote[at].len};
      copies.push_back(direction == WRITE ? dma_copy{from, to, 0} : dma_copy{to, from, 0});
    }
    if (!copies.empty()) {
      transfer->device = transfer->peer ? &remote_device_ : &local_device_;
      const dma_status status = dma_batch_create(copies.data(), copies.size(), &transfer->batch);
      if (status != DMA_OK)
        return failure_of(status);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    transfers_.insert(transfer.get());
    handle = transfer.release();
    return SUCCESS;
  }

  Status post(const Direction &, const List<MemoryRange> &, const List<MemoryRange> &, const std::string &, Handle *&handle,
              const PostOptions *options) const override {
    Transfer &transfer = *static_cast<Transfer *>(handle);
    std::unique_lock<std::mutex> lock(mutex_);
    if (transfer.runner != Runner::NONE)
      return ACTIVE;
    if (transfer.revoked) {
      log("a transfer with memory that was deregistered");
      return INVALID;
    }
    transfer.notifies = options && options->has_notification;
    transfer.message = transfer.notifies ? options->notification : "";
    transfer.status = IN_PROGRESS;
    if (transfer.device) {
      submit(transfer);
      progress();
      return transfer.status;
    }
    transfer.next = {};
    transfer.failure = {};
    transfer.mailbox_deadline = {};
    transfer.runner = Runner::THREADS;
    if (transfer.bytes <= INLINE_BYTES)
      while (transfer.has_work() && !transfer.waits_for_mailbox())
        work(lock, transfer);
    if (transfer.runner == Runner::THREADS) {
      jobs_.push_back(&transfer);
      wake();
    }
    return transfer.status;
  }

  Status check(Handle *handle) const override {
    Transfer &transfer = *static_cast<Transfer *>(handle);
    std::unique_lock<std::mutex> lock(mutex_);
    if (transfer.has_work())
      work(lock, transfer);
    else if (transfer.runner != Runner::NONE)
      progress();
    return transfer.status;
  }

  // NIXL loses the handle even if this function fails, so it waits for the transfer.
  Status release(Handle *handle) const override {
    const std::unique_ptr<Transfer> transfer(static_cast<Transfer *>(handle));
    std::unique_lock<std::mutex> lock(mutex_);
    transfer->cancelled = true;
    wait(lock, *transfer);
    transfers_.erase(transfer.get());
    close_batch(*transfer);
    return SUCCESS;
  }

  Status describe(const Memory *memory, std::string &text) const override {
    const Region &region = *static_cast<const Piece *>(memory)->region;
    text = region.descriptor.empty() ? "1" : "1 " + region.descriptor;
    return SUCCESS;
  }

  Status describe_connection(std::string &text) const override {
    text = describe_process(mailbox_.name(), notification_server_.address());
    return SUCCESS;
  }

  // A peer that cannot be used causes errors only in its transfers. If this function failed, NIXL would discard the peer for
  // all backends.
  Status load_connection(const std::string &agent_name, const std::string &text) override {
    auto peer = std::make_shared<Peer>(text);
    if (remote_device_.is_open() && (all_remote_ || peer->usable().status == NOT_SUPPORTED))
      peer->use_remote_notifier();
    if (peer->usable().status != SUCCESS)
      log("agent " + agent_name + " cannot be used: " + peer->usable().reason);
    std::lock_guard<std::mutex> lock(mutex_);
    // The previous peer is destroyed after the lock is released.
    peers_[agent_name].swap(peer);
    return SUCCESS;
  }

  Status load_remote(const DescribedRange &range, const MemoryType &type, const std::string &agent_name,
                     Memory *&memory) override {
    if (range.text.substr(0, 2) != "1 " && range.text != "1")
      return MISMATCH;
    auto piece = std::make_unique<Piece>();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto peer = peers_.find(agent_name);
      if (peer == peers_.end())
        return NOT_FOUND;
      piece->peer = peer->second;
    }
    if (piece->peer->remote_notifier())
      import(*piece, range);
    piece->address = range.address;
    piece->len = range.len;
    piece->type = type;
    memory = piece.release();
    return SUCCESS;
  }

  Status load_local(Memory *registered, Memory *&memory) override {
    memory = new Piece(*static_cast<Piece *>(registered));
    return SUCCESS;
  }

  Status take_notifications(Notifications &notifications) override {
    std::lock_guard<std::mutex> lock(mutex_);
    progress();
    const bool was_full = notifications_.size() >= MAX_NOTIFICATIONS;
    for (auto &notification : notifications_)
      notifications.push_back(std::move(notification));
    notifications_.clear();
    if (was_full) {
      changed_.notify_all();
      wake();
    }
    return SUCCESS;
  }

  Status notify(const std::string &agent_name, const std::string &message) const override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (agent_name == agent) {
      notifications_.emplace_back(agent, message);
      return SUCCESS;
    }
    const auto found = peers_.find(agent_name);
    if (found == peers_.end())
      return NOT_FOUND;
    const std::shared_ptr<Peer> peer = found->second;
    lock.unlock();
    if (peer->remote_notifier()) {
      auto sent = std::make_shared<std::promise<Outcome>>();
      peer->remote_notifier()->send(agent, message, [sent](const Outcome &outcome) { sent->set_value(outcome); });
      return report(agent_name, sent->get_future().get());
    }
    const auto deadline = Clock::now() + MAILBOX_TIMEOUT;
    for (;;) {
      const Outcome sent = peer->usable().status ? peer->usable() : mailbox_.send(*peer, agent, message);
      if (sent.status == IN_PROGRESS && Clock::now() < deadline) {
        std::this_thread::sleep_for(milliseconds(1));
        continue;
      }
      return report(agent_name, sent);
    }
  }

private:
  bool open(const Options &options) {
    std::string local_engine = default_options()["engine"], remote_engine, listen, ptrace, peers;
    for (const auto &[name, value] : options) {
      if (name == "engine")
        local_engine = value;
      else if (name == "remote")
        remote_engine = value;
      else if (name == "listen")
        listen = value;
      else if (name == "peers")
        peers = value;
      else if (name == "ptrace")
        ptrace = value;
      else if (name == "stall_ms" && !value.empty() && value.size() < 9 && value.find_first_not_of("0123456789") == value.npos)
        stall_limit_ = milliseconds(std::stoul(value));
      else {
        log("option " + name + "=" + value + "; the options are engine=NAME, remote=NAME, listen=IP:PORT, peers=remote, " +
            "ptrace=any, stall_ms=MILLISECONDS");
        return false;
      }
    }
    if (!ptrace.empty() && ptrace != "any") {
      log("option ptrace=" + ptrace + "; the only allowed value is any");
      return false;
    }
    if (!peers.empty() && peers != "remote") {
      log("option peers=" + peers + "; the only allowed value is remote");
      return false;
    }
    if (remote_engine.empty() != listen.empty() || (remote_engine.empty() && !peers.empty())) {
      log("the option remote needs the option listen, which is an address of this host, and peers and listen need remote");
      return false;
    }
    all_remote_ = !peers.empty();
    if (ptrace == "any" && prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) != 0 && errno != EINVAL) {
      log("option ptrace=any: " + std::generic_category().message(errno));
      return false;
    }
    if (!local_device_.open(local_engine)) {
      log(last_error());
      return false;
    }
    if (!remote_engine.empty()) {
      remote_device_.name = remote_engine;
      if (remote_engine == local_engine)
        remote_device_.engine = local_device_.engine;
      if (remote_engine == local_engine ? !remote_device_.open_queue() : !remote_device_.open(remote_engine)) {
        log(last_error());
        return false;
      }
      const Outcome opened = notification_server_.open(listen, [this](std::string from, std::string message) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return ended_ || notifications_.size() < MAX_NOTIFICATIONS; });
        if (!ended_)
          notifications_.emplace_back(std::move(from), std::move(message));
        return !ended_;
      });
      if (opened.status) {
        log(opened.reason);
        return false;
      }
    }
    for (const Device *device : {&local_device_, &remote_device_})
      if (device->is_open() && !(device->capabilities & DMA_CAN_REGISTER)) {
        log("engine " + device->name + " cannot register memory of the program");
        return false;
      }
    if (mailbox_.usable().status || event_.get() < 0) {
      log(event_.get() < 0 ? "eventfd fails" : mailbox_.usable().reason);
      return false;
    }
    return true;
  }

  // Exports a region to peers on other hosts.
  static dma_status share(Region &region) {
    size_t len = 0;
    dma_status status = dma_region_export(region.remote_handle, 0, region.len, DMA_READ | DMA_WRITE, &region.exported);
    if (status == DMA_OK)
      status = dma_export_descriptor(region.exported, nullptr, 0, &len);
    if (status != DMA_OK && status != DMA_OUT_OF_RANGE)
      return status;
    std::vector<unsigned char> bytes(len);
    status = dma_export_descriptor(region.exported, bytes.data(), bytes.size(), &len);
    region.descriptor = hex(bytes.data(), bytes.size());
    return status;
  }

  // Closes a region. Afterwards, no device and no peer on another host accesses it. Logs failures.
  static dma_status close(const Region &region) {
    dma_status result = DMA_OK;
    const auto note = [&result](dma_status status) {
      if (status != DMA_OK) {
        log(last_error());
        result = status;
      }
    };
    if (region.exported.id != 0)
      note(dma_export_revoke(region.exported, 5000));
    if (region.remote_handle.id != region.handle.id && region.remote_handle.id != 0)
      note(dma_region_close(region.remote_handle));
    if (region.handle.id != 0)
      note(dma_region_close(region.handle));
    return result;
  }

  // Imports a peer's memory. A failure causes errors only in transfers with this memory, as in `load_connection`.
  void import(Piece &piece, const DescribedRange &range) const {
    std::string bytes;
    dma_region handle{};
    if (range.text.size() < 3 || !from_hex(range.text.substr(2), bytes)) {
      piece.refusal = {NOT_SUPPORTED, "its memory is not registered for peers on other hosts"};
      return;
    }
    dma_region_info info{};
    info.size = sizeof info;
    const dma_status status = dma_region_import(remote_device_.engine, bytes.data(), bytes.size(), &handle);
    if (status != DMA_OK) {
      piece.refusal = {status == DMA_REVOKED ? DISCONNECTED : BACKEND, last_error()};
      return;
    }
    piece.import = std::make_shared<Import>(handle);
    if (dma_region_describe(handle, &info) != DMA_OK || info.len != range.len) {
      piece.import = nullptr;
      piece.refusal = {MISMATCH, "its memory has another length than it was registered with"};
    }
  }

  // Returns the region of a range within the process, or null. NIXL 1.0.0 keeps its view of deregistered memory, and uses
  // that view for memory that is registered later at the same address.
  std::shared_ptr<Region> registered(const Piece &piece, const Range &range) const {
    std::lock_guard<std::mutex> lock(mutex_);
    if (regions_.count(piece.region))
      return piece.region;
    const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const std::shared_ptr<Region> &region) {
      return region->type == piece.type && contains(region->address, region->len, range);
    });
    return found == regions_.end() ? nullptr : *found;
  }

  // Checks whether a transfer between a region and a peer's memory is possible.
  Status check_peer(const std::string &agent_name, const Piece &theirs, const Piece &ours) const {
    if (theirs.type != DRAM || ours.type != DRAM) {
      log("agent " + agent_name + ": between processes, DRAM only");
      return NOT_SUPPORTED;
    }
    if (theirs.peer->remote_notifier() && !theirs.import)
      return report(agent_name, theirs.refusal);
    return report(agent_name, theirs.peer->usable());
  }

  static Status report(const std::string &agent_name, const Outcome &outcome) {
    if (outcome.status == SUCCESS)
      return SUCCESS;
    log("agent " + agent_name + ": " + outcome.reason);
    return outcome.status == IN_PROGRESS ? BACKEND : outcome.status;
  }

  void wake() const {
    const uint64_t one = 1;
    // The write fails only if the counter is at its maximum, and in that case the descriptor is already readable.
    (void)!write(event_.get(), &one, sizeof one);
  }

  void close_batch(Transfer &transfer) const {
    if (transfer.batch.id != 0 && dma_batch_close(transfer.batch) != DMA_OK)
      log(last_error());
    transfer.batch = {};
  }

  // Ends a transfer. This function and those below are called with the mutex locked.
  void end(Transfer &transfer, Status status) const {
    if (transfer.runner == Runner::THREADS)
      jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), &transfer), jobs_.end());
    transfer.status = status;
    transfer.runner = Runner::NONE;
    changed_.notify_all();
  }

  void submit(Transfer &transfer) const {
    Device &device = *transfer.device;
    const dma_status status = dma_queue_submit(device.queue, transfer.batch, reinterpret_cast<uint64_t>(&transfer));
    if (status == DMA_QUEUE_FULL) {
      if (transfer.runner != Runner::QUEUE_IS_FULL)
        device.waiting.push_back(&transfer);
      transfer.runner = Runner::QUEUE_IS_FULL;
    } else if (status != DMA_OK) {
      end(transfer, failure_of(status));
    } else {
      if (device.on_device++ == 0)
        device.idle_for = {};
      device.bytes_on_device += transfer.bytes;
      transfer.runner = Runner::DEVICE;
    }
  }

  void progress() const {
    progress(local_device_);
    if (remote_device_.is_open())
      progress(remote_device_);
  }

  // Polls completions, and submits transfers that found the queue full. Stops the queue of a stalled device.
  void progress(Device &device) const {
    const auto now = Clock::now();
    device.idle_for += std::min<Clock::duration>(now - device.last_poll, MAX_GAP);
    device.last_poll = now;
    // With a capacity of 1, the thread's last error belongs to this completion.
    dma_completion done;
    size_t count = 0;
    while (dma_queue_poll(device.queue, &done, 1, &count) == DMA_OK && count == 1) {
      Transfer &transfer = *reinterpret_cast<Transfer *>(done.token);
      device.on_device--;
      device.bytes_on_device -= transfer.bytes;
      device.idle_for = {};
      const Status status = done.status == DMA_OK ? SUCCESS : failure_of(done.status);
      if (transfer.peer && (status != SUCCESS || transfer.notifies)) {
        notify_remote(transfer, status);
        continue;
      }
      if (status == SUCCESS && transfer.notifies)
        notifications_.emplace_back(agent, transfer.message);
      end(transfer, status);
    }
    while (!device.waiting.empty()) {
      Transfer &transfer = *device.waiting.front();
      submit(transfer);
      if (transfer.runner == Runner::QUEUE_IS_FULL)
        break;
      device.waiting.pop_front();
    }
    // Even a slow device copies at least 100 MB/s.
    if (device.on_device > 0 && device.idle_for > stall_limit_ + milliseconds(device.bytes_on_device / 100'000)) {
      log("the device of engine " + device.name + " is stalled; its queue is stopped, and all its transfers fail");
      if (dma_queue_stop(device.queue, 0) != DMA_OK)
        log(last_error());
      device.idle_for = {};
    }
  }

  // Sends the notification of a transfer to another host. After a failed transfer, only checks whether the peer can be
  // reached.
  void notify_remote(Transfer &transfer, Status status) const {
    transfer.runner = Runner::REMOTE_NOTIFIER;
    remote_calls_++;
    const bool sends = status == SUCCESS && !transfer.cancelled;
    transfer.peer->remote_notifier()->send(sends ? agent : "", sends ? transfer.message : "", [this, &transfer, status](const Outcome &outcome) {
      std::lock_guard<std::mutex> lock(mutex_);
      remote_calls_--;
      end(transfer, transfer.cancelled ? CANCELLED : outcome.status ? report(transfer.agent, outcome) : status);
    });
  }

  // Waits until neither a device nor a thread accesses memory for this transfer. If the caller is not the transfer's owner,
  // the owner may have freed the transfer when this function returns.
  void wait(std::unique_lock<std::mutex> &lock, Transfer &transfer) const {
    unsigned polls = 0;
    while (transfers_.count(&transfer) && transfer.runner != Runner::NONE) {
      if (transfer.runner == Runner::REMOTE_NOTIFIER) {
        changed_.wait_for(lock, milliseconds(1));
        continue;
      }
      if (transfer.runner == Runner::THREADS) {
        if (transfer.has_work())
          work(lock, transfer);
        if (transfer.runner == Runner::THREADS && (!transfer.has_work() || transfer.waits_for_mailbox()))
          changed_.wait_for(lock, milliseconds(1));
        continue;
      }
      progress();
      if (transfer.runner == Runner::NONE)
        break;
      lock.unlock();
      if (++polls > 1000)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      else
        std::this_thread::yield();
      lock.lock();
    }
  }

  // Continues a transfer to another process, for which `has_work` is true. Releases the lock while it copies. When this
  // function returns, the transfer may have ended. If the caller is not the transfer's owner, the owner may have freed the
  // transfer. Returns false if the transfer waits for the peer's mailbox.
  bool work(std::unique_lock<std::mutex> &lock, Transfer &transfer) const {
    if (transfer.cancelled || transfer.failure.status)
      transfer.next = {transfer.local.size(), 0};
    transfer.running++;
    if (!transfer.next.is_end(transfer.local)) {
      const Position begin = transfer.next;
      const size_t len = transfer.next.advance(transfer.local, SLICE_BYTES);
      lock.unlock();
      const Outcome copied = transfer.peer->copy(transfer.direction, transfer.local, transfer.remote, begin, len);
      lock.lock();
      if (copied.status)
        transfer.failure = copied;
    }
    if (transfer.running > 1 || !(transfer.next.is_end(transfer.local) || transfer.failure.status)) {
      transfer.running--;
      return true;
    }
    Outcome outcome = transfer.failure;
    if (transfer.notifies && !transfer.cancelled && !outcome.status) {
      lock.unlock();
      outcome = mailbox_.send(*transfer.peer, agent, transfer.message);
      lock.lock();
      const auto now = Clock::now();
      if (outcome.status == IN_PROGRESS && !transfer.waits_for_mailbox())
        transfer.mailbox_deadline = now + MAILBOX_TIMEOUT;
      if (outcome.status == IN_PROGRESS && now < transfer.mailbox_deadline && !transfer.cancelled) {
        transfer.running--;
        return false;
      }
    }
    transfer.running--;
    end(transfer, transfer.cancelled ? CANCELLED : report(transfer.agent, outcome));
    return true;
  }

  // The plugin's thread: receives notifications, and executes copies to other processes.
  void run() {
    size_t full = 0; // Consecutive transfers whose peer's mailbox is full.
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (ended_)
        return;
      std::pair<std::string, std::string> notification;
      while (notifications_.size() < MAX_NOTIFICATIONS && mailbox_.receive(notification))
        notifications_.push_back(std::move(notification));
      const bool is_full = notifications_.size() >= MAX_NOTIFICATIONS;
      // If all transfers wait for mailboxes or for threads that check them, they are tried every millisecond.
      int timeout_ms = jobs_.empty() ? -1 : 1;
      const auto job = std::find_if(jobs_.begin(), jobs_.end(), [](const Transfer *each) { return each->has_work(); });
      if (job != jobs_.end()) {
        Transfer &transfer = **job;
        // Transfers take turns.
        std::rotate(job, job + 1, jobs_.end());
        full = work(lock, transfer) ? 0 : full + 1;
        if (full < jobs_.size())
          timeout_ms = 0;
        else
          full = 0;
      }
      lock.unlock();
      pollfd sources[] = {{event_.get(), POLLIN, 0}, {is_full ? -1 : mailbox_.descriptor(), POLLIN, 0}};
      if (poll(sources, 2, timeout_ms) > 0 && sources[0].revents) {
        uint64_t wakes;
        (void)!read(event_.get(), &wakes, sizeof wakes);
      }
    }
  }

  // The engine for copies within this process, and the engine for peers on other hosts.
  mutable Device local_device_, remote_device_;
  bool all_remote_ = false;
  milliseconds stall_limit_{30'000};
  Mailbox mailbox_;
  File event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  // Guards all members below, and the transfers.
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::set<std::shared_ptr<Region>> regions_;
  mutable std::set<Transfer *> transfers_;
  mutable std::deque<Transfer *> jobs_;
  mutable size_t remote_calls_ = 0; // Calls to remote notifiers that have not called back yet.
  mutable Notifications notifications_;
  std::map<std::string, std::shared_ptr<Peer>> peers_;
  bool ended_ = false;
  std::thread thread_;
  NotificationServer notification_server_; // The last member, so that its threads end before all other members are destroyed.
};

} // namespace

Options default_options() {
  return {{"engine", "cpu"}, {"remote", ""}, {"listen", ""}, {"peers", ""}, {"ptrace", ""}, {"stall_ms", "30000"}};
}

Engine *create_engine(const InitParameters &init) { return new Backend(init); }

} // namespace dma_nixl
