// Notifications between hosts, over TCP. Both sides prove that they know the receiver's secret, which is part of the
// receiver's description. Each notification is authenticated and acknowledged. Nothing is encrypted.
#pragma once
#include "peer.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace dma_nixl {

using Digest = std::array<unsigned char, 32>;

// SHA-256, and HMAC with SHA-256 (FIPS 180-4, RFC 2104).
Digest sha256(const std::string &text);
Digest hmac(const std::string &key, const std::string &text);

std::string hex(const unsigned char *bytes, size_t len);
// Decodes hexadecimal digits. Returns false if the text has other characters or an odd length.
bool from_hex(const std::string &text, std::string &bytes);

// The address at which a process receives notifications from other hosts.
struct NotificationAddress {
  std::string host = "-"; // A numeric address; "-" if the process receives no notifications from other hosts.
  uint16_t port = 0;
  std::string secret;

  bool exists() const { return host != "-"; }
};

// Receives notifications from other hosts. Each connection has a thread.
class NotificationServer {
public:
  // Stores a notification. Returns false if the backend is being destroyed.
  using Deliver = std::function<bool(std::string agent, std::string message)>;

  ~NotificationServer();
  // Listens at "HOST" or "HOST:PORT". Both are numeric, and an IPv6 address with a port is in brackets.
  Outcome open(const std::string &listen, Deliver deliver);
  const NotificationAddress &address() const { return address_; }

private:
  struct Connection {
    explicit Connection(int fd) : socket(fd) {}
    File socket;
    std::atomic<bool> ended{false}, proven{false};
    std::thread thread;
  };

  void accept_all();
  void serve(Connection &connection) const;

  NotificationAddress address_;
  Deliver deliver_;
  File socket_, event_;
  std::thread thread_;
  std::list<Connection> connections_; // Only `thread_` accesses it.
};

// Sends notifications to a process of another host. Any thread may call its functions.
class RemoteNotifier {
public:
  using Done = std::function<void(const Outcome &)>;

  // `limit` is the time limit for each step of connecting, and for the answer to a notification. A peer that is stopped for a
  // shorter time fails no transfer.
  RemoteNotifier(NotificationAddress address, std::chrono::milliseconds limit);
  ~RemoteNotifier();

  // Calls `done` in another thread once the receiver has the message, or after a time limit. If `agent` is empty, the receiver
  // stores nothing, and the outcome says whether it answers.
  void send(std::string agent, std::string message, Done done);

private:
  struct Notification {
    std::string agent, message;
    Done done;
  };

  void run();
  Outcome deliver(const Notification &notification);
  bool connect();

  const NotificationAddress address_;
  const std::chrono::milliseconds limit_;
  File socket_; // Only the thread accesses it.
  std::string key_; // The key of the current connection.
  uint64_t sent_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Notification> queue_;
  bool ended_ = false;
  std::thread thread_;
};

} // namespace dma_nixl
