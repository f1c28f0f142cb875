// The class of the backend. backend.cpp has its start, its peers and its notifications, memory.cpp its memory, and
// transfers.cpp its transfers, and recovery.cpp what follows when a piece of a transfer fails.
#pragma once
#include "backend.hpp"
#include "costs.hpp"
#include "objects.hpp"
#include "remote_notifier.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <sys/eventfd.h>
#include <thread>

namespace dma_nixl {

using std::chrono::milliseconds;

// An engine may wait this long for a host that does not answer. During this time, its device is not considered stalled.
constexpr milliseconds HOST_TIMEOUT{40'000};
// Maximum number of notifications that the user has not taken. Further notifications wait in the mailbox, and then at the
// senders.
constexpr size_t MAX_NOTIFICATIONS = 1 << 16;

class Backend final : public Engine {
public:
  explicit Backend(const InitParameters &init);
  ~Backend() override;

  bool is_remote() const override { return true; }
  bool is_local() const override { return true; }
  bool has_notifications() const override { return true; }

  MemoryTypes memory_types() const override;
  Status register_memory(const DescribedRange &range, const MemoryType &type, Memory *&memory) override;

  // NIXL ignores a failure of this function, and its user may then free the memory. So this function waits for the transfers
  // that use the region, and closes the batches of prepared transfers that use it.
  Status deregister_memory(Memory *memory) override;
  Status connect(const std::string &agent_name) override;

  Status disconnect(const std::string &agent_name) override;
  Status unload(Memory *memory) override;

  Status prepare(const Direction &direction, const List<MemoryRange> &local, const List<MemoryRange> &remote,
                 const std::string &agent_name, Handle *&handle, const PostOptions *) const override;
  Status post(const Direction &, const List<MemoryRange> &, const List<MemoryRange> &, const std::string &, Handle *&handle,
              const PostOptions *options) const override;
  Status check(Handle *handle) const override;

  // Estimates the time from the posting of a prepared transfer to its end, from earlier transfers. NOT_FOUND: none of this kind
  // has completed.
  Status estimate(const Direction &, const List<MemoryRange> &, const List<MemoryRange> &, const std::string &,
                  Handle *const &handle, std::chrono::microseconds &time, std::chrono::microseconds &margin, int &method,
                  const void *) const override;

  // NIXL loses the handle even if this function fails, so it waits for the transfer.
  Status release(Handle *handle) const override;
  Status describe(const Memory *memory, std::string &text) const override;

  Status describe_connection(std::string &text) const override;

  // A peer that cannot be used causes errors only in its transfers. If this function failed, NIXL would discard the peer for
  // all backends.
  Status load_connection(const std::string &agent_name, const std::string &text) override;
  Status load_remote(const DescribedRange &range, const MemoryType &type, const std::string &agent_name,
                     Memory *&memory) override;
  Status load_local(Memory *registered, Memory *&memory) override;

  Status take_notifications(Notifications &notifications) override;
  Status notify(const std::string &agent_name, const std::string &message) const override;

private:
  bool open(const Options &options);

  // Opens a queue for a peer on another host, which the last user closes. Returns null if this fails; then the reason is the
  // thread's last error.
  std::shared_ptr<Device> open_remote_queue(const std::string &agent_name) const;
  bool has_remote() const { return remote_engine_.engine.id != 0; }

  // Exports a region to peers on other hosts.
  static dma_status share(Region &region);

  // Exports device memory to peers on other hosts by its dma-buf, or notes why that is impossible.
  void share_device_memory(Region &region) const;

  // Closes a region. Afterwards, no device and no peer on another host accesses it. Logs failures.
  static dma_status close(const Region &region);

  // Returns whether a peer on this host still exists, and has not deregistered the device memory that a transfer uses.
  static Outcome check_memory(const Transfer &transfer);

  // Imports device memory of a peer on this host. A failure causes errors only in transfers with this memory.
  void import_device_memory(Piece &piece, const DescribedRange &range) const;

  // Imports a peer's memory. A failure causes errors only in transfers with this memory, as in `load_connection`.
  void import(Piece &piece, const DescribedRange &range) const;

  // Returns the region of a range within the process, or null. NIXL 1.0.0 keeps its view of deregistered memory, and uses
  // that view for memory that is registered later at the same address.
  std::shared_ptr<Region> registered(const Piece &piece, const Range &range) const;

  // Checks whether a transfer between a region and a peer's memory is possible.
  Status check_peer(const std::string &agent_name, const Piece &theirs, const Piece &ours) const;
  static Status report(const std::string &agent_name, const Outcome &outcome);

  void wake() const;
  void close_batch(Transfer &transfer) const;

  // Prepares the first attempt of a transfer that a device executes.
  static void begin_attempts(Transfer &transfer);

  // Submits the failed pieces of a transfer again, as the errors advise, or to the CPU if the device was lost. The failures
  // are those of the thread's last completion. Returns false if a piece has failed for good, which is logged.
  bool try_again(Transfer &transfer) const;

  // Submits a transfer after the peer on another host has answered, and ends it if the peer does not answer. While an
  // engine connects to a host that is lost, its queue executes nothing else.
  void submit_if_reachable(Transfer &transfer) const;

  // Makes the batch of the pieces that have failed.
  static bool prepare_rest(Transfer &transfer);

  // Notes that a device is lost: its transfers fail, or go over to the CPU. Logs that once for each device.
  void lose(Device &device, const std::string &reason) const;

  bool has_fallback(const Device &device) const { return &device == &local_device_ && cpu_device_.is_open(); }

  // Lets the CPU execute a transfer of a lost device. Returns false if this is impossible, and logs the reason.
  bool go_over_to_cpu(Transfer &transfer) const;

  // Ends a transfer. This function and those below are called with the mutex locked.
  void end(Transfer &transfer, Status status) const;
  void submit(Transfer &transfer) const;

  void progress() const;

  // Polls completions, and submits transfers that found the queue full. Stops the queue of a stalled device.
  void progress(Device &device) const;

  // Returns whether the device of this process executes a transfer with memory of another process of this host.
  static bool is_on_device_of_host(const Transfer &transfer) {
    return transfer.device && transfer.peer && !transfer.peer->remote_notifier();
  }

  // Ends such a transfer, or lets a thread send its notification.
  void end_on_device_of_host(Transfer &transfer, Status status) const;

  // Sends the notification of a transfer to another host. After a failed transfer, only checks whether the peer can be
  // reached.
  void notify_remote(Transfer &transfer, Status status) const;

  // Waits until neither a device nor a thread accesses memory for this transfer. If the caller is not the transfer's owner,
  // the owner may have freed the transfer when this function returns.
  void wait(std::unique_lock<std::mutex> &lock, Transfer &transfer) const;

  // Continues a transfer to another process, for which `has_work` is true. Releases the lock while it copies. When this
  // function returns, the transfer may have ended. If the caller is not the transfer's owner, the owner may have freed the
  // transfer. Returns false if the transfer waits for the peer's mailbox.
  bool work(std::unique_lock<std::mutex> &lock, Transfer &transfer) const;

  // The plugin's thread: receives notifications, and executes copies to other processes.
  void run();

  // The engine for copies within this process.
  mutable Device local_device_;
  // The engine for peers on other hosts, without a queue.
  Device remote_engine_;
  // The engine that takes over transfers within this process when the device of `local_device_` is lost, if an option asks
  // for it.
  mutable Device cpu_device_;
  bool all_remote_ = false;
  milliseconds stall_limit_{}, answer_limit_{}; // The options stall_ms and answer_ms.
  Mailbox mailbox_;
  File event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  // Guards all members below, and the transfers.
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::set<std::shared_ptr<Region>> regions_;
  mutable std::set<Transfer *> transfers_;
  mutable std::set<Device *> remote_queues_;
  mutable std::deque<Transfer *> jobs_;
  mutable size_t remote_calls_ = 0; // Calls to remote notifiers that have not called back yet.
  mutable Notifications notifications_;
  mutable Costs costs_;
  std::map<std::string, std::shared_ptr<Peer>> peers_;
  bool ended_ = false;
  std::thread thread_;
  NotificationServer notification_server_; // The last member, so that its threads end before all other members are destroyed.
};

} // namespace dma_nixl
