#include "peer.hpp"

#include "remote_notifier.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>

namespace dma_nixl {
namespace {

// Maximum number of pieces in one system call. The kernel allows 1024.
constexpr size_t PIECES = 128;

constexpr const char *FORMAT = "dma-nixl-1";

std::string text_of(int error) { return std::generic_category().message(error); }

// Returns the inode of a namespace of this process.
std::string namespace_of(const char *kind) {
  struct stat found {};
  const std::string path = std::string("/proc/self/ns/") + kind;
  return stat(path.c_str(), &found) == 0 ? std::to_string(found.st_ino) : "unknown";
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? "unknown" : id;
}

// Returns the start time of a process, which distinguishes it from later processes with the same number.
std::string start_time(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // The second field is a name that may contain spaces and parentheses.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos)
    return "";
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; number++)
    fields >> field;
  return field;
}

sockaddr_un address_of(const std::string &name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An abstract name begins with a NUL, and does not exist in the file system.
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
  return address;
}

} // namespace

File::~File() { reset(-1); }

void File::reset(int fd) {
  if (fd_ >= 0)
    close(fd_);
  fd_ = fd;
}

std::string describe_process(const std::string &mailbox, const NotificationAddress &post) {
  const pid_t pid = getpid();
  std::ostringstream text;
  text << FORMAT << ' ' << boot_id() << ' ' << namespace_of("pid") << ' ' << namespace_of("net") << ' ' << pid << ' '
       << start_time(pid) << ' ' << post.host << ' ' << post.port << ' '
       << hex(reinterpret_cast<const unsigned char *>(post.secret.data()), post.secret.size()) << "- " << mailbox;
  return text.str();
}

Peer::Peer(const std::string &description) : remote_address_(std::make_unique<NotificationAddress>()), usable_(open(description)) {}

Peer::~Peer() = default;

void Peer::use_remote_notifier(std::chrono::milliseconds limit) {
  if (usable_.status == MISMATCH || usable_.status == DISCONNECTED)
    return;
  usable_ = remote_address_->exists() ? Outcome{} : Outcome{NOT_SUPPORTED, "its plugin has no option remote, which peers on other hosts need"};
  if (remote_address_->exists())
    remote_notifier_ = std::make_unique<RemoteNotifier>(*remote_address_, limit);
}

Outcome Peer::open(const std::string &description) {
  std::istringstream fields(description);
  std::string format, boot, pids, network, started, secret;
  fields >> format >> boot >> pids >> network >> pid_ >> started >> remote_address_->host >> remote_address_->port >> secret >> mailbox_;
  // The secret may be empty, so a "-" follows it.
  if (!fields || format != FORMAT || pid_ <= 0 || secret.back() != '-' ||
      !from_hex(secret.substr(0, secret.size() - 1), remote_address_->secret))
    return {MISMATCH, "its description is of another version of this plugin"};
  if (boot != boot_id())
    return {NOT_SUPPORTED, "it runs on another host; give both plugins the options remote and listen"};
  if (pids != namespace_of("pid") || network != namespace_of("net"))
    return {NOT_SUPPORTED, "it runs in another PID or network namespace; let the containers share both, or give both "
                           "plugins the options remote and listen"};
  process_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (process_.get() < 0)
    return errno == ESRCH ? Outcome{DISCONNECTED, "it has exited"}
                          : Outcome{NOT_SUPPORTED, "pidfd_open: " + text_of(errno) + "; Linux 5.3 or later is needed"};
  // The start time is read after the descriptor is opened, so that both belong to one process.
  if (start_time(pid_) != started || has_exited())
    return {DISCONNECTED, "it has exited"};
  return {};
}

bool Peer::is_self() const { return pid_ == getpid(); }

bool Peer::has_exited() const {
  pollfd exited{process_.get(), POLLIN, 0};
  return poll(&exited, 1, 0) > 0;
}

size_t Position::advance(const std::vector<iovec> &pieces, size_t len) {
  size_t left = len;
  while (piece < pieces.size()) {
    const size_t rest = pieces[piece].iov_len - offset;
    if (rest > left) {
      offset += left;
      return len;
    }
    left -= rest;
    piece++;
    offset = 0;
  }
  return len - left;
}

Outcome Peer::copy(Direction direction, const std::vector<iovec> &local, const std::vector<iovec> &remote, Position begin,
                   size_t len) const {
  const auto call = direction == WRITE ? process_vm_writev : process_vm_readv;
  // A read needs only the check after it: if another process has the number by now, only this process's memory has changed.
  if (direction == WRITE && has_exited())
    return {DISCONNECTED, "it has exited"};
  while (len > 0) {
    iovec ours[PIECES], theirs[PIECES];
    size_t count = 0, total = 0;
    for (size_t at = begin.piece; at < local.size() && count < PIECES && total < len; at++, count++) {
      const size_t skipped = at == begin.piece ? begin.offset : 0;
      const size_t part = std::min(local[at].iov_len - skipped, len - total);
      ours[count] = {static_cast<char *>(local[at].iov_base) + skipped, part};
      theirs[count] = {static_cast<char *>(remote[at].iov_base) + skipped, part};
      total += part;
    }
    const ssize_t done = total > 0 ? call(pid_, ours, count, theirs, count, 0) : 0;
    const int error = errno;
    // The kernel may have assigned the process number to another process in the meantime.
    if (has_exited())
      return {DISCONNECTED, "it has exited"};
    if (done < 0 && error == EINTR)
      continue;
    if (done < 0 && error == EPERM)
      return {NOT_ALLOWED, "the system refuses access to its memory: run both as one user; where kernel.yama.ptrace_scope is "
                           "1, give its plugin the option ptrace=any"};
    if (done < 0)
      return {error == ESRCH ? DISCONNECTED : BACKEND, "access to its memory: " + text_of(error)};
    if (done == 0 && total > 0)
      return {BACKEND, "access to its memory: no byte was copied"};
    begin.advance(local, static_cast<size_t>(done));
    len -= static_cast<size_t>(done);
  }
  return {};
}

Mailbox::Mailbox() : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  unsigned char random[16];
  if (getrandom(random, sizeof random, 0) != sizeof random) {
    usable_ = {BACKEND, "getrandom: " + text_of(errno)};
    return;
  }
  name_ = "dma-nixl.";
  for (const unsigned char byte : random) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    name_ += digits;
  }
  const int on = 1, room = 4 << 20;
  const sockaddr_un address = address_of(name_);
  // The kernel limits the size of the send buffer to net.core.wmem_max. This is not an error here, because
  // sending reports it.
  (void)setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  if (socket_.get() < 0 || setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(socket_.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
    usable_ = {BACKEND, "mailbox: " + text_of(errno)};
}

bool Mailbox::receive(std::pair<std::string, std::string> &notification) const {
  for (;;) {
    char none;
    const ssize_t len = recv(socket_.get(), &none, 1, MSG_PEEK | MSG_TRUNC);
    if (len < 0)
      return false;
    std::string bytes(static_cast<size_t>(len), '\0');
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
    iovec place{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &place;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(socket_.get(), &message, 0) != len)
      continue;
    ucred sender{};
    sender.uid = static_cast<uid_t>(-1);
    for (cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
      if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_CREDENTIALS)
        std::memcpy(&sender, CMSG_DATA(part), sizeof sender);
    // Messages from other users are ignored, except from root.
    if (sender.uid != geteuid() && sender.uid != 0)
      continue;
    uint32_t agent_len = 0;
    if (bytes.size() < sizeof agent_len)
      continue;
    std::memcpy(&agent_len, bytes.data(), sizeof agent_len);
    if (agent_len > bytes.size() - sizeof agent_len)
      continue;
    notification = {bytes.substr(sizeof agent_len, agent_len), bytes.substr(sizeof agent_len + agent_len)};
    return true;
  }
}

Outcome Mailbox::send(const Peer &peer, const std::string &agent, const std::string &message) const {
  const uint32_t agent_len = static_cast<uint32_t>(agent.size());
  std::string bytes(reinterpret_cast<const char *>(&agent_len), sizeof agent_len);
  bytes += agent;
  bytes += message;
  const sockaddr_un address = address_of(peer.mailbox());
  // Any user may bind the name of a mailbox whose process has ended.
  if (peer.has_exited())
    return {DISCONNECTED, "it has exited"};
  const ssize_t sent = sendto(socket_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr *>(&address),
                              sizeof address);
  if (sent >= 0)
    return {};
  switch (errno) {
  case EAGAIN:
  case EINTR:
  case ENOBUFS:
    return {IN_PROGRESS, "its mailbox is full"};
  case EMSGSIZE:
    return {INVALID, "a notification of " + std::to_string(message.size()) +
                         " bytes; net.core.wmem_max limits notifications to about twice its number of bytes"};
  case ECONNREFUSED:
    return {DISCONNECTED, "it has exited"};
  default:
    return {BACKEND, "notification: " + text_of(errno)};
  }
}

} // namespace dma_nixl
