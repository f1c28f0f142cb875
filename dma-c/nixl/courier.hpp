// Notifications between hosts, over TCP. Both sides prove that they know a secret of the receiver, which its description
// has, and each notification is authenticated and acknowledged. Nothing is encrypted.
#pragma once
#include "peer.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace dma_nixl {

using Digest = std::array<unsigned char, 32>;

// SHA-256, and HMAC with it (FIPS 180-4, RFC 2104).
Digest sha256(const std::string &text);
Digest hmac(const std::string &key, const std::string &text);

std::string hex(const unsigned char *bytes, size_t len);
// Returns whether the text is such digits.
bool from_hex(const std::string &text, std::string &bytes);

// Where a process receives notifications of other hosts.
struct PostAddress {
  std::string host = "-"; // Numeric. "-": nowhere.
  uint16_t port = 0;
  std::string secret;

  bool exists() const { return host != "-"; }
};

// Receives the notifications of other hosts. Each connection has a thread.
class PostOffice {
public:
  // Passes on a notification. Returns false if the program ends.
  using Deliver = std::function<bool(std::string agent, std::string message)>;

  ~PostOffice();
  // Listens at "HOST" or "HOST:PORT", with numbers, and IPv6 in brackets.
  Outcome open(const std::string &listen, Deliver deliver);
  const PostAddress &address() const { return address_; }

private:
  struct Connection {
    explicit Connection(int fd) : socket(fd) {}
    File socket;
    std::atomic<bool> ended{false}, proven{false};
    std::thread thread;
  };

  void accept_all();
  void serve(Connection &connection) const;

  PostAddress address_;
  Deliver deliver_;
  File socket_, event_;
  std::thread thread_;
  std::list<Connection> connections_; // Of the thread.
};

// Sends notifications to a process of another host. Any thread may call its functions.
class Courier {
public:
  using Done = std::function<void(const Outcome &)>;

  explicit Courier(PostAddress address);
  ~Courier();

  // Calls `done` in another thread once the receiver has the message, or after some seconds. Without an agent, nothing is
  // sent, and the outcome says whether the receiver can be reached.
  void send(std::string agent, std::string message, Done done);

private:
  struct Letter {
    std::string agent, message;
    Done done;
  };

  void run();
  Outcome deliver(const Letter &letter);
  bool connect();

  const PostAddress address_;
  File socket_;      // Of the thread.
  std::string key_;  // Of the connection.
  uint64_t sent_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Letter> letters_;
  bool ended_ = false;
  std::thread thread_;
};

} // namespace dma_nixl
