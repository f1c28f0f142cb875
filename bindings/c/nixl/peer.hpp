// Other processes: their identity, and for processes of this host, messages and copies to and from their
// memory.
#pragma once
#include "interface.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <sys/uio.h>
#include <utility>
#include <vector>

namespace dma_nixl {

// A gap between two looks at a device or a peer counts as at most this time of a limit. Otherwise a process that was stopped
// would consider its device stalled, and give up its peer.
constexpr std::chrono::milliseconds MAX_GAP{100};

// A file descriptor, which the destructor closes.
class File {
public:
  explicit File(int fd = -1) : fd_(fd) {}
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  ~File();
  int get() const { return fd_; }
  void reset(int fd);

private:
  int fd_;
};

// The outcome of a call: the status for NIXL, and for a failure the reason for the log.
struct Outcome {
  Status status = SUCCESS;
  std::string reason = {};
};

struct Device;
class RemoteNotifier;
struct NotificationAddress;

// Returns the description of this process for peers: its identity, its mailbox, and its address for other
// hosts.
std::string describe_process(const std::string &mailbox, const NotificationAddress &post);

// A position in a list of pieces.
struct Position {
  size_t piece = 0, offset = 0;

  // Advances by up to `len` bytes, and past empty pieces. Returns the number of bytes.
  size_t advance(const std::vector<iovec> &pieces, size_t len);
  bool is_end(const std::vector<iovec> &pieces) const { return piece == pieces.size(); }
};

// A process that has sent its description. Any thread may call the functions.
class Peer {
public:
  explicit Peer(const std::string &description);
  ~Peer();

  // Returns success, or the reason why transfers with this peer are impossible.
  const Outcome &usable() const { return usable_; }
  const std::string &mailbox() const { return mailbox_; }

  // Treats the peer as a process of another host from now on, which answers within `limit`. Must be called before all other
  // functions.
  void use_remote_notifier(std::chrono::milliseconds limit);
  // Records why transfers with this peer are impossible. Must be called before the peer is used.
  void refuse(Outcome reason) { usable_ = std::move(reason); }
  // Returns null for a peer that is reached within the host.
  RemoteNotifier *remote_notifier() const { return remote_notifier_.get(); }

  // Returns whether the peer is in this process.
  bool is_self() const;
  // Returns whether the process has ended.
  bool has_exited() const;
  // Copies `len` bytes from position `begin` on, between lists of the same shape.
  Outcome copy(Direction direction, const std::vector<iovec> &local, const std::vector<iovec> &remote, Position begin,
               size_t len) const;

  // The queue for a peer that is reached by the engine for other hosts.
  std::shared_ptr<Device> device;

private:
  Outcome open(const std::string &description);

  pid_t pid_ = 0;
  File process_;
  std::string mailbox_;
  std::unique_ptr<NotificationAddress> remote_address_;
  Outcome usable_;
  std::unique_ptr<RemoteNotifier> remote_notifier_;
};

// Receives messages from processes of the same user, and sends messages. Any thread may send.
class Mailbox {
public:
  Mailbox();
  const std::string &name() const { return name_; }
  const Outcome &usable() const { return usable_; }
  int descriptor() const { return socket_.get(); }

  // Removes and returns the next message, if there is one.
  bool receive(std::pair<std::string, std::string> &notification) const;
  // Sends a message. The status IN_PROGRESS means that the peer's mailbox is full.
  Outcome send(const Peer &peer, const std::string &agent, const std::string &message) const;

private:
  std::string name_;
  File socket_;
  Outcome usable_;
};

} // namespace dma_nixl
