#include "remote_notifier.hpp"

#include "threads.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace dma_nixl {

using std::chrono::milliseconds;

namespace {

// Time limit for a sender to prove that it knows the secret, and for the acknowledgement of bytes that were sent to it.
constexpr milliseconds SENDER_LIMIT{30'000};
// Maximum lengths of the name and of the message of a notification, in bytes.
constexpr uint32_t MAX_NAME = 64 << 10, MAX_MESSAGE = 1 << 20;
// Maximum number of connections that have not yet proven that they know the secret, and of all
// connections.
constexpr size_t MAX_UNPROVEN = 64, MAX_CONNECTIONS = 4096;

// The time of a wait without a limit.
constexpr milliseconds FOREVER = milliseconds::max();

constexpr size_t NONCE = 32;

std::string bytes_of(const Digest &digest) { return {digest.begin(), digest.end()}; }

// Compares in a time that depends only on the length, not on the bytes.
bool same(const std::string &a, const std::string &b) {
  unsigned char difference = a.size() != b.size();
  for (size_t at = 0; at < a.size() && at < b.size(); at++)
    difference |= static_cast<unsigned char>(a[at] ^ b[at]);
  return difference == 0;
}

std::string number(uint64_t value, size_t len) {
  std::string bytes;
  for (size_t at = 0; at < len; at++)
    bytes += static_cast<char>(value >> 8 * at);
  return bytes;
}

uint64_t number_of(const std::string &bytes, size_t begin, size_t len) {
  uint64_t value = 0;
  for (size_t at = 0; at < len; at++)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[begin + at])) << 8 * at;
  return value;
}

bool random_bytes(std::string &bytes) {
  bytes.assign(NONCE, '\0');
  return getrandom(&bytes[0], NONCE, 0) == static_cast<ssize_t>(NONCE);
}

void set_options(int fd, milliseconds limit) {
  const int on = 1, unanswered_ms = static_cast<int>(limit.count());
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

// Waits until `fd` has one of `events`, or the time `left` is over, which it shortens. Without a limit, `left` is FOREVER. A
// process that is stopped and continued again and again must not wait longer, so a wait that is interrupted is not begun again
// with the whole time.
bool wait_for(int fd, short events, milliseconds &left) {
  while (left > milliseconds(0)) {
    const bool ends = left != FOREVER;
    const milliseconds slice = std::min(left, MAX_GAP);
    const auto start = std::chrono::steady_clock::now();
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, ends ? static_cast<int>(slice.count()) : -1);
    if (ready > 0)
      return true;
    if (ready < 0 && errno != EINTR)
      return false;
    const auto took = std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now() - start);
    if (ends)
      left -= std::clamp(took, milliseconds(1), slice);
  }
  return false;
}

// Returns whether a call that failed with `errno` can be repeated, after waiting for `events`.
bool can_repeat(int fd, short events, milliseconds &left) {
  return errno == EINTR || (errno == EAGAIN && wait_for(fd, events, left));
}

bool write_all(int fd, const std::string &bytes, milliseconds left) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      at += static_cast<size_t>(sent);
    else if (sent == 0 || !can_repeat(fd, POLLOUT, left))
      return false;
  }
  return true;
}

bool read_all(int fd, std::string &bytes, size_t len, milliseconds left) {
  bytes.assign(len, '\0');
  for (size_t at = 0; at < len;) {
    const ssize_t got = recv(fd, &bytes[at], len - at, MSG_DONTWAIT);
    if (got > 0)
      at += static_cast<size_t>(got);
    else if (got == 0 || !can_repeat(fd, POLLIN, left))
      return false;
  }
  return true;
}

// Connects a socket that does not block.
bool connect_to(int fd, const sockaddr *address, socklen_t len, milliseconds left) {
  if (::connect(fd, address, len) == 0)
    return true;
  int error = 0;
  socklen_t size = sizeof error;
  return (errno == EINPROGRESS || errno == EINTR) && wait_for(fd, POLLOUT, left) &&
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

struct FreeInfo {
  void operator()(addrinfo *info) const { freeaddrinfo(info); }
};
using Info = std::unique_ptr<addrinfo, FreeInfo>;

// Returns the address for a numeric host and port, or null.
Info resolve(const std::string &host, const std::string &port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  return Info(getaddrinfo(host.c_str(), port.c_str(), &hints, &found) == 0 ? found : nullptr);
}

int tcp_socket(const addrinfo &info) { return socket(info.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

} // namespace

Digest sha256(const std::string &text) {
  static constexpr uint32_t K[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
      0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
      0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
      0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
      0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
      0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto rotate = [](uint32_t x, unsigned n) { return x >> n | x << (32 - n); };
  std::string padded = text + '\x80';
  padded.resize((padded.size() + 8 + 63) / 64 * 64 - 8);
  for (int shift = 56; shift >= 0; shift -= 8)
    padded += static_cast<char>(static_cast<uint64_t>(text.size()) * 8 >> shift);
  for (size_t block = 0; block < padded.size(); block += 64) {
    uint32_t w[64];
    for (size_t at = 0; at < 16; at++) {
      w[at] = 0;
      for (size_t byte = 0; byte < 4; byte++)
        w[at] = w[at] << 8 | static_cast<unsigned char>(padded[block + 4 * at + byte]);
    }
    for (size_t at = 16; at < 64; at++) {
      const uint32_t s0 = rotate(w[at - 15], 7) ^ rotate(w[at - 15], 18) ^ w[at - 15] >> 3;
      const uint32_t s1 = rotate(w[at - 2], 17) ^ rotate(w[at - 2], 19) ^ w[at - 2] >> 10;
      w[at] = w[at - 16] + s0 + w[at - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t at = 0; at < 64; at++) {
      const uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25), choice = (e & f) ^ (~e & g);
      const uint32_t t1 = h + s1 + choice + K[at] + w[at];
      const uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + s0 + majority;
    }
    const uint32_t added[8] = {a, b, c, d, e, f, g, h};
    for (size_t at = 0; at < 8; at++)
      state[at] += added[at];
  }
  Digest digest;
  for (size_t at = 0; at < digest.size(); at++)
    digest[at] = static_cast<unsigned char>(state[at / 4] >> (24 - 8 * (at % 4)));
  return digest;
}

Digest hmac(const std::string &key, const std::string &text) {
  std::string inner = key.size() > 64 ? bytes_of(sha256(key)) : key;
  inner.resize(64);
  std::string outer = inner;
  for (size_t at = 0; at < 64; at++) {
    inner[at] = static_cast<char>(inner[at] ^ 0x36);
    outer[at] = static_cast<char>(outer[at] ^ 0x5c);
  }
  return sha256(outer + bytes_of(sha256(inner + text)));
}

std::string hex(const unsigned char *bytes, size_t len) {
  std::string text;
  for (size_t at = 0; at < len; at++) {
    text += "0123456789abcdef"[bytes[at] >> 4];
    text += "0123456789abcdef"[bytes[at] & 15];
  }
  return text;
}

bool from_hex(const std::string &text, std::string &bytes) {
  bytes.clear();
  const std::string digits = "0123456789abcdef";
  for (size_t at = 0; at + 1 < text.size(); at += 2) {
    const size_t high = digits.find(text[at]), low = digits.find(text[at + 1]);
    if (high == digits.npos || low == digits.npos)
      return false;
    bytes += static_cast<char>(high << 4 | low);
  }
  return text.size() % 2 == 0;
}

NotificationServer::~NotificationServer() {
  if (!thread_.joinable())
    return;
  const uint64_t one = 1;
  (void)!write(event_.get(), &one, sizeof one);
  thread_.join();
}

Outcome NotificationServer::open(const std::string &listen_at, Deliver deliver) {
  std::string host = listen_at, port = "0";
  const size_t bracket = host.find(']'), colon = host.rfind(':');
  // An IPv6 address without brackets contains several colons, none of which begins a port.
  if (colon != host.npos && (bracket != host.npos ? colon == bracket + 1 : colon == host.find(':'))) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (bracket != host.npos && host.front() == '[')
    host = host.substr(1, bracket - 1);
  const Info info = resolve(host, port);
  if (!info)
    return {INVALID, "option listen=" + listen_at + "; it is IP, IP:PORT or [IP]:PORT, with numbers"};
  const auto failed = [&] { return Outcome{BACKEND, "option listen=" + listen_at + ": " + std::generic_category().message(errno)}; };
  socket_.reset(tcp_socket(*info));
  event_.reset(eventfd(0, EFD_CLOEXEC));
  sockaddr_storage bound{};
  socklen_t len = sizeof bound;
  const int on = 1;
  (void)setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (event_.get() < 0 || bind(socket_.get(), info->ai_addr, info->ai_addrlen) != 0 || listen(socket_.get(), 128) != 0 ||
      getsockname(socket_.get(), reinterpret_cast<sockaddr *>(&bound), &len) != 0)
    return failed();
  if (!random_bytes(address_.secret))
    return failed();
  address_.host = host;
  address_.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6 &>(bound).sin6_port
                                                    : reinterpret_cast<const sockaddr_in &>(bound).sin_port);
  deliver_ = std::move(deliver);
  thread_ = start_thread([this] { accept_all(); });
  return {};
}

void NotificationServer::accept_all() {
  for (;;) {
    pollfd sources[] = {{event_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    if (poll(sources, 2, -1) > 0 && sources[0].revents)
      break;
    size_t unproven = 0;
    for (auto connection = connections_.begin(); connection != connections_.end();) {
      if (connection->ended) {
        connection->thread.join();
        connection = connections_.erase(connection);
      } else {
        unproven += !connection->proven;
        ++connection;
      }
    }
    const int fd = accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      // If no file descriptor is free, the connection waits.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
        (void)poll(sources, 1, 100);
      continue;
    }
    if (unproven >= MAX_UNPROVEN || connections_.size() >= MAX_CONNECTIONS) {
      close(fd);
      continue;
    }
    Connection &connection = connections_.emplace_back(fd);
    try {
      connection.thread = start_thread([this, &connection] {
        serve(connection);
        // This tells the peer that the connection has ended.
        shutdown(connection.socket.get(), SHUT_RDWR);
        connection.ended = true;
      });
    } catch (const std::system_error &) {
      connections_.pop_back();
    }
  }
  for (Connection &connection : connections_)
    shutdown(connection.socket.get(), SHUT_RDWR);
  for (Connection &connection : connections_)
    connection.thread.join();
}

void NotificationServer::serve(Connection &connection) const {
  const int fd = connection.socket.get();
  set_options(fd, SENDER_LIMIT);
  std::string nonce, request;
  if (!random_bytes(nonce) || !write_all(fd, nonce, SENDER_LIMIT) ||
      !read_all(fd, request, NONCE + sizeof(Digest), SENDER_LIMIT))
    return;
  const std::string nonces = nonce + request.substr(0, NONCE);
  if (!same(request.substr(NONCE), bytes_of(hmac(address_.secret, "sender" + nonces))))
    return;
  connection.proven = true;
  if (!write_all(fd, bytes_of(hmac(address_.secret, "receiver" + nonces)), FOREVER))
    return;
  const std::string key = bytes_of(hmac(address_.secret, "key" + nonces));
  for (uint64_t count = 0;; count++) {
    std::string lengths, text, proof;
    if (!read_all(fd, lengths, 8, FOREVER))
      return;
    const auto name_len = static_cast<uint32_t>(number_of(lengths, 0, 4)), len = static_cast<uint32_t>(number_of(lengths, 4, 4));
    if (name_len > MAX_NAME || len > MAX_MESSAGE || !read_all(fd, text, size_t(name_len) + len, FOREVER) ||
        !read_all(fd, proof, sizeof(Digest), FOREVER) || !same(proof, bytes_of(hmac(key, "letter" + number(count, 8) + lengths + text))))
      return;
    // A message without a name only asks for an answer.
    if (name_len > 0 && !deliver_(text.substr(0, name_len), text.substr(name_len)))
      return;
    if (!write_all(fd, bytes_of(hmac(key, "got" + number(count, 8))), FOREVER))
      return;
  }
}

RemoteNotifier::RemoteNotifier(NotificationAddress address, milliseconds limit)
    : address_(std::move(address)), limit_(limit), thread_(start_thread([this] { run(); })) {}

RemoteNotifier::~RemoteNotifier() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RemoteNotifier::send(std::string agent, std::string message, Done done) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back({std::move(agent), std::move(message), std::move(done)});
  }
  changed_.notify_all();
}

void RemoteNotifier::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ended_ || !queue_.empty(); });
    if (queue_.empty())
      return;
    const Notification notification = std::move(queue_.front());
    queue_.pop_front();
    const bool gives_up = ended_;
    lock.unlock();
    notification.done(gives_up ? Outcome{CANCELLED, "the peer was forgotten"} : deliver(notification));
    lock.lock();
  }
}

Outcome RemoteNotifier::deliver(const Notification &notification) {
  if (notification.agent.size() > MAX_NAME || notification.message.size() > MAX_MESSAGE)
    return {INVALID, "a notification of " + std::to_string(notification.message.size()) + " bytes; between hosts, " +
                         std::to_string(MAX_MESSAGE) + " at most"};
  char none;
  // The peer sends only answers, so a connection that is readable now has ended.
  if (socket_.get() >= 0 && recv(socket_.get(), &none, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
    socket_.reset(-1);
  if (socket_.get() < 0 && !connect()) {
    socket_.reset(-1);
    return {DISCONNECTED, "it cannot be reached at " + address_.host + " port " + std::to_string(address_.port)};
  }
  const std::string lengths = number(notification.agent.size(), 4) + number(notification.message.size(), 4);
  const std::string text = notification.agent + notification.message;
  const std::string count = number(sent_++, 8);
  std::string answer;
  if (write_all(socket_.get(), lengths + text + bytes_of(hmac(key_, "letter" + count + lengths + text)), limit_) &&
      read_all(socket_.get(), answer, sizeof(Digest), limit_) && same(answer, bytes_of(hmac(key_, "got" + count))))
    return {};
  socket_.reset(-1);
  return {DISCONNECTED, "it does not accept a notification"};
}

bool RemoteNotifier::connect() {
  const Info info = resolve(address_.host, std::to_string(address_.port));
  if (!info)
    return false;
  socket_.reset(tcp_socket(*info));
  const int fd = socket_.get();
  set_options(fd, limit_);
  std::string nonce, own, answer;
  if (!connect_to(fd, info->ai_addr, info->ai_addrlen, limit_) || !read_all(fd, nonce, NONCE, limit_) || !random_bytes(own))
    return false;
  const std::string nonces = nonce + own;
  if (!write_all(fd, own + bytes_of(hmac(address_.secret, "sender" + nonces)), limit_) ||
      !read_all(fd, answer, sizeof(Digest), limit_) ||
      !same(answer, bytes_of(hmac(address_.secret, "receiver" + nonces))))
    return false;
  key_ = bytes_of(hmac(address_.secret, "key" + nonces));
  sent_ = 0;
  return true;
}

} // namespace dma_nixl
