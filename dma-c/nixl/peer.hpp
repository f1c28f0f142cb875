// Other processes: their identity, and for those of this host, copies to and from their memory, and messages.
#pragma once
#include "interface.hpp"

#include <memory>
#include <string>
#include <sys/uio.h>
#include <vector>

namespace dma_nixl {

// A file descriptor that is closed.
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

// A failed call: the status for NIXL, and the reason for the log.
struct Outcome {
  Status status = SUCCESS;
  std::string reason = {};
};

class Courier;
struct PostAddress;

// Identifies this process, its mailbox, and its address for other hosts to peers.
std::string describe_process(const std::string &mailbox, const PostAddress &post);

// A place in a list of pieces.
struct Position {
  size_t piece = 0, offset = 0;

  // Moves over up to `len` bytes, and over empty pieces. Returns the number of bytes.
  size_t advance(const std::vector<iovec> &pieces, size_t len);
  bool is_end(const std::vector<iovec> &pieces) const { return piece == pieces.size(); }
};

// A process that has sent its description. Any thread may call its functions.
class Peer {
public:
  explicit Peer(const std::string &description);
  ~Peer();

  // Why transfers with this peer are impossible, or success.
  const Outcome &usable() const { return usable_; }
  const std::string &mailbox() const { return mailbox_; }

  // Reaches it as a process of another host from now on. Only before other calls.
  void go_far();
  // null for a process that is reached within the host.
  Courier *courier() const { return courier_.get(); }

  // Whether the process has ended.
  bool has_exited() const;
  // Copies between lists of the same shape, `len` bytes from `begin` on.
  Outcome copy(Direction direction, const std::vector<iovec> &local, const std::vector<iovec> &remote, Position begin,
               size_t len) const;

private:
  Outcome open(const std::string &description);

  pid_t pid_ = 0;
  File process_;
  std::string mailbox_;
  std::unique_ptr<PostAddress> post_;
  Outcome usable_;
  std::unique_ptr<Courier> courier_;
};

// Receives messages of processes of the same user, and sends them. Any thread may send.
class Mailbox {
public:
  Mailbox();
  const std::string &name() const { return name_; }
  const Outcome &usable() const { return usable_; }
  int descriptor() const { return socket_.get(); }

  // Takes the next message, if there is one.
  bool receive(std::pair<std::string, std::string> &notification) const;
  // Sends a message. IN_PROGRESS: the peer's mailbox is full.
  Outcome send(const Peer &peer, const std::string &agent, const std::string &message) const;

private:
  std::string name_;
  File socket_;
  Outcome usable_;
};

} // namespace dma_nixl
