// Tests with other processes, on this host and on others.
#pragma once
#include "peer.hpp"
#include "pieces.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

static void between_processes(const Options &options) {
  Peer peer(options);
  Agent agent("me", options);
  Bytes ours = pattern(Peer::LEN, 1);
  const Object l = agent.add(ours);
  const uint64_t start = reinterpret_cast<uint64_t>(peer.bytes);
  Object r = nullptr;
  CHECK(agent.import("peer", start, Peer::LEN, peer.text, r) == NOT_FOUND);
  CHECK(agent.meet("peer", peer.address) == DONE);
  CHECK((call<int, const Text &>(agent.engine, connect_, "peer") == DONE));
  CHECK(agent.import("peer", start, Peer::LEN, "2", r) == MISMATCH);
  CHECK(agent.import("peer", start, Peer::LEN, peer.text, r) == DONE);
  const Text mine = agent.address();
  CHECK(write(peer.input, mine.data(), mine.size()) == static_cast<ssize_t>(mine.size()));
  // 64 pieces are copied within the call, and 64 MiB by the thread, in both directions. 2,000 pieces need several system
  // calls, and 1,024 pieces are adjacent.
  for (const auto &[count, len] : std::vector<std::pair<size_t, size_t>>{{64, 1000}, {1, Peer::LEN}, {2000, 16'000}, {1024, 5000}}) {
    const bool adjacent = count == 1024;
    const size_t step = adjacent ? len : Peer::LEN / count;
    std::vector<std::pair<size_t, size_t>> from, to;
    for (size_t at = 0; at < count; at++) {
      from.push_back({at * step, len});
      to.push_back({(adjacent ? at : count - 1 - at) * step + (step - len), len});
    }
    const List left = places(ours.data(), from, l), right = places(peer.bytes, to, r);
    for (const unsigned operation : {WRITE, READ}) {
      fill(ours, operation);
      Bytes theirs = pattern(Peer::LEN, 2);
      std::copy(theirs.begin(), theirs.end(), peer.bytes);
      Bytes before = ours;
      Object handle = nullptr;
      CHECK(agent.prepare(operation, left, right, "peer", handle) == DONE);
      CHECK(agent.state(handle) < 0);
      CHECK(started(agent.post(operation, left, right, "peer", handle, operation == WRITE ? "after " + std::to_string(count) : "")));
      CHECK(agent.wait(handle) == DONE);
      apply(operation, before, from, theirs, to);
      CHECK(ours == before && std::equal(theirs.begin(), theirs.end(), peer.bytes));
      CHECK(agent.free(handle) == DONE);
    }
  }
  Notes expected{{"peer", "got after 64"}, {"peer", "got after 1"}, {"peer", "got after 2000"}, {"peer", "got after 1024"}};
  CHECK(agent.wait_notes(4) == expected);
  Object bad = nullptr;
  CHECK(agent.prepare(WRITE, places(ours.data(), {{0, 8}}, l), places(peer.bytes, {{Peer::LEN - 4, 8}}, r), "peer", bad) == INVALID);
  CHECK(agent.notify("peer", Text(8 << 20, 'x')) == INVALID);
  // The handle is released during a transfer.
  Object handle = nullptr;
  const List left = places(ours.data(), {{0, Peer::LEN}}, l), right = places(peer.bytes, {{0, Peer::LEN}}, r);
  CHECK(agent.prepare(WRITE, left, right, "peer", handle) == DONE);
  CHECK(started(agent.post(WRITE, left, right, "peer", handle)));
  CHECK(agent.free(handle) == DONE);
  // The memory is deregistered during a transfer, which has ended when the call returns.
  CHECK(agent.prepare(READ, left, right, "peer", handle) == DONE);
  CHECK(started(agent.post(READ, left, right, "peer", handle)));
  CHECK(agent.remove(l) == DONE);
  CHECK(agent.state(handle) == DONE && std::equal(ours.begin(), ours.end(), peer.bytes));
  CHECK(agent.free(handle) == DONE);
  agent.unload(r);
  peer.end();
}

static double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

static void killed_and_stopped_peers_are_errors(const Options &options) {
  const int rounds = options.empty() ? 10 : 4;
  for (int round = 0; round < rounds; round++) {
    Peer peer(options);
    Agent agent("me", options);
    Bytes ours = pattern(Peer::LEN, 5);
    const Object l = agent.add(ours);
    Object r = nullptr, handle = nullptr;
    CHECK(agent.meet("peer", peer.address) == DONE);
    CHECK(agent.import("peer", reinterpret_cast<uint64_t>(peer.bytes), Peer::LEN, peer.text, r) == DONE);
    const List left = places(ours.data(), {{0, Peer::LEN}}, l), right = places(peer.bytes, {{0, Peer::LEN}}, r);
    CHECK(agent.prepare(WRITE, left, right, "peer", handle) == DONE);
    CHECK(started(agent.post(WRITE, left, right, "peer", handle, "done")));
    usleep(static_cast<useconds_t>(round * 1000));
    peer.kill_now();
    const int state = agent.wait(handle);
    CHECK(state == GONE || (state == DONE && std::equal(ours.begin(), ours.end(), peer.bytes)));
    const int again = agent.post(WRITE, left, right, "peer", handle);
    CHECK(again == GONE || agent.wait(handle) == GONE);
    CHECK(agent.notify("peer", "note") == GONE);
    CHECK(agent.free(handle) == DONE);
    // A peer that has already exited is detected when it is introduced.
    CHECK(agent.meet("peer", peer.address) == DONE);
    agent.unload(r);
    CHECK(agent.import("peer", reinterpret_cast<uint64_t>(peer.bytes), Peer::LEN, peer.text, r) == DONE);
    CHECK(agent.prepare(WRITE, left, places(peer.bytes, {{0, Peer::LEN}}, r), "peer", handle) == GONE);
    agent.unload(r);
    CHECK(agent.remove(l) == DONE);
  }
  // A stopped peer receives no notifications. If its mailbox is full, or it does not answer, sending fails after `answer_ms`.
  // The device that waits for the peer for longer than `stall_ms` is not lost, and the transfer is done once the peer continues.
  Options impatient = options;
  impatient["stall_ms"] = "200";
  impatient["answer_ms"] = "1000";
  Peer peer(options);
  Agent agent("me", impatient);
  Bytes ours = pattern(4096, 5);
  const Object l = agent.add(ours);
  Object r = nullptr, handle = nullptr;
  CHECK(agent.meet("peer", peer.address) == DONE);
  CHECK(agent.import("peer", reinterpret_cast<uint64_t>(peer.bytes), Peer::LEN, peer.text, r) == DONE);
  CHECK(agent.prepare(WRITE, places(ours.data(), {{0, 4096}}, l), places(peer.bytes, {{0, 4096}}, r), "peer", handle) == DONE);
  kill(peer.pid, SIGSTOP);
  CHECK(started(agent.post(WRITE, {}, {}, "peer", handle)));
  std::atomic<bool> sends{true};
  std::thread checks([&] {
    for (; sends; usleep(1000))
      (void)agent.state(handle);
  });
  // If this machine was stopped meanwhile, sending is tried again.
  double shortest = 60;
  for (int attempt = 0; attempt < 3 && shortest > 25; attempt++) {
    const auto start = std::chrono::steady_clock::now();
    int sent = DONE;
    for (int count = 0; count < 100'000 && sent == DONE; count++)
      sent = agent.notify("peer", "note");
    CHECK(sent == (options.empty() ? FAILED : GONE) && seconds_since(start) >= 1);
    shortest = std::min(shortest, seconds_since(start));
  }
  CHECK(shortest <= 25);
  kill(peer.pid, SIGCONT);
  sends = false;
  checks.join();
  CHECK(agent.wait(handle) == DONE && std::equal(ours.begin(), ours.end(), peer.bytes));
  CHECK(agent.free(handle) == DONE);
  peer.kill_now();
  agent.unload(r);
  CHECK(agent.remove(l) == DONE);
}

// While a transfer waits for a stopped peer, transfers with another peer are done. The engine waits 30 s for the stopped peer. If
// this machine was stopped for that long, the transfer has failed, and the test is repeated.
static void a_stopped_peer_delays_no_other_peer() {
  double longest = 60;
  for (int round = 0; round < 3 && longest > 25; round++) {
    Peer stopped(FAR), other(FAR);
    Agent agent("me", FAR);
    Bytes ours = pattern(4096, 5);
    const Object l = agent.add(ours);
    Object memory[2], handles[2];
    for (const int at : {0, 1}) {
      const Peer &peer = at == 0 ? stopped : other;
      const Text name = at == 0 ? "stopped" : "other";
      CHECK(agent.meet(name, peer.address) == DONE);
      CHECK(agent.import(name, reinterpret_cast<uint64_t>(peer.bytes), Peer::LEN, peer.text, memory[at]) == DONE);
      const List right = places(peer.bytes, {{0, 4096}}, memory[at]);
      CHECK(agent.prepare(WRITE, places(ours.data(), {{0, 4096}}, l), right, name, handles[at]) == DONE);
    }
    kill(stopped.pid, SIGSTOP);
    const auto start = std::chrono::steady_clock::now();
    CHECK(agent.post(WRITE, {}, {}, "stopped", handles[0]) == IN_PROGRESS);
    CHECK(started(agent.post(WRITE, {}, {}, "other", handles[1], "note")) && agent.wait(handles[1]) == DONE);
    longest = seconds_since(start);
    const int waiting = agent.state(handles[0]);
    const bool in_time = seconds_since(start) <= 25;
    CHECK(std::equal(ours.begin(), ours.end(), other.bytes) && (waiting == IN_PROGRESS || !in_time));
    kill(stopped.pid, SIGCONT);
    const int ended = agent.wait(handles[0]);
    CHECK(!in_time || (ended == DONE && std::equal(ours.begin(), ours.end(), stopped.bytes)));
    for (const int at : {0, 1}) {
      CHECK(agent.free(handles[at]) == DONE);
      agent.unload(memory[at]);
    }
    CHECK(agent.remove(l) == DONE);
    // The second process has the ends of the first one's pipes.
    other.end();
    stopped.end();
  }
  CHECK(longest <= 25);
}

// Returns the abstract name of a mailbox. Any process may bind the name after its owner has ended.
static sockaddr_un mailbox_of(const Text &address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.substr(address.rfind(' ') + 1).copy(name.sun_path + 1, sizeof name.sun_path - 2);
  return name;
}

// A process that binds the name of a killed peer's mailbox receives nothing.
static void a_taken_mailbox_gets_nothing() {
  Peer peer;
  Agent agent("me");
  CHECK(agent.meet("peer", peer.address) == DONE);
  CHECK(agent.notify("peer", "note") == DONE);
  peer.kill_now();
  const int thief = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  const sockaddr_un name = mailbox_of(peer.address);
  CHECK(bind(thief, reinterpret_cast<const sockaddr *>(&name), sizeof name) == 0);
  CHECK(agent.notify("peer", "secret") == GONE);
  char byte;
  CHECK(recv(thief, &byte, 1, 0) < 0);
  close(thief);
}

// Waiting for a stopped peer's full mailbox takes no CPU time, for any number of waiting transfers.
static void waiting_for_a_mailbox_sleeps() {
  Peer peer;
  Agent agent("me");
  Bytes ours = pattern(64, 5);
  const Object l = agent.add(ours);
  Object r = nullptr;
  CHECK(agent.meet("peer", peer.address) == DONE);
  CHECK(agent.import("peer", reinterpret_cast<uint64_t>(peer.bytes), Peer::LEN, peer.text, r) == DONE);
  kill(peer.pid, SIGSTOP);
  std::vector<Object> handles;
  for (int waiting = 0; waiting < 3;) {
    handles.push_back(nullptr);
    CHECK(agent.prepare(WRITE, places(ours.data(), {{0, 64}}, l), places(peer.bytes, {{0, 64}}, r), "peer", handles.back()) == DONE);
    waiting += agent.post(WRITE, {}, {}, "peer", handles.back(), "note") == IN_PROGRESS;
  }
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  usleep(500'000);
  getrusage(RUSAGE_SELF, &after);
  const auto used = [](const rusage &usage) {
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  CHECK(used(after) - used(before) < 0.05);
  for (const Object handle : handles)
    CHECK(agent.free(handle) == DONE);
  agent.unload(r);
  CHECK(agent.remove(l) == DONE);
  peer.kill_now();
}

// Transfers to peers that cannot be reached fail with a reason.
static void unreachable_peers_are_errors() {
  Agent agent("me");
  Bytes ours(4096);
  const Object l = agent.add(ours);
  const Text address = agent.address();
  std::vector<size_t> spaces;
  for (size_t at = 0; at < address.size(); at++)
    if (address[at] == ' ')
      spaces.push_back(at);
  CHECK(spaces.size() == 9);
  // Changes the format, the host, each of two namespaces, and the start time of the process.
  for (const auto &[at, expected] : std::map<size_t, int>{{0, MISMATCH}, {spaces[0] + 1, UNSUPPORTED}, {spaces[1] + 1, UNSUPPORTED}, {spaces[2] + 1, UNSUPPORTED}, {spaces[4] + 1, GONE}}) {
    Text changed = address;
    changed[at] = changed[at] == '1' ? '2' : '1';
    Object r = nullptr, handle = nullptr;
    CHECK(agent.meet("other", changed) == DONE);
    CHECK(agent.import("other", reinterpret_cast<uint64_t>(ours.data()), 4096, "1", r) == DONE);
    CHECK(agent.prepare(READ, places(ours.data(), {{0, 8}}, l), places(ours.data(), {{8, 8}}, r), "other", handle) == expected);
    CHECK(agent.notify("other", "note") == expected);
    agent.unload(r);
  }
  Object r = nullptr, handle = nullptr;
  CHECK(agent.meet("other", "nonsense") == DONE);
  CHECK(agent.import("other", 64, 64, "1", r) == DONE);
  CHECK(agent.prepare(READ, places(ours.data(), {{0, 8}}, l), places(nullptr, {{64, 8}}, r), "other", handle) == MISMATCH);
  agent.unload(r);
  // This address does not exist in the peer.
  CHECK(agent.meet("other", address) == DONE);
  CHECK(agent.import("other", 64, 64, "1", r) == DONE);
  CHECK(agent.prepare(READ, places(ours.data(), {{0, 8}}, l), places(nullptr, {{64, 8}}, r), "other", handle) == DONE);
  CHECK(agent.post(READ, {}, {}, "other", handle) == FAILED && agent.state(handle) == FAILED);
  CHECK(agent.free(handle) == DONE);
  agent.unload(r);
  CHECK(agent.remove(l) == DONE);
}

// Transfers and notifications fail if the peer has deregistered its memory or lacks the option `remote`, or if the
// secret is wrong.
static void peers_on_other_hosts_grant_what_they_registered() {
  Peer peer(FAR);
  Agent agent("me", FAR), near("near");
  Bytes ours = pattern(4096, 5);
  const Object l = agent.add(ours), n = near.add(ours);
  Object r = nullptr, handle = nullptr;
  CHECK(agent.meet("peer", peer.address) == DONE);
  CHECK(agent.import("peer", reinterpret_cast<uint64_t>(peer.bytes), Peer::LEN - 1, peer.text, r) == DONE);
  CHECK(agent.prepare(WRITE, places(ours.data(), {{0, 8}}, l), places(peer.bytes, {{0, 8}}, r), "peer", handle) == MISMATCH);
  agent.unload(r);
  CHECK(agent.import("peer", reinterpret_cast<uint64_t>(peer.bytes), Peer::LEN, "1", r) == DONE);
  CHECK(agent.prepare(WRITE, places(ours.data(), {{0, 8}}, l), places(peer.bytes, {{0, 8}}, r), "peer", handle) == UNSUPPORTED);
  agent.unload(r);
  // First the peer lacks the option `remote`, then the agent does. In an address, the first word is the format, and the
  // second is the host.
  Text elsewhere = near.address();
  elsewhere[elsewhere.find(' ') + 1] = elsewhere[elsewhere.find(' ') + 1] == '1' ? '2' : '1';
  CHECK(agent.meet("near", elsewhere) == DONE && agent.notify("near", "note") == UNSUPPORTED);
  elsewhere = peer.address;
  elsewhere[elsewhere.find(' ') + 1] = elsewhere[elsewhere.find(' ') + 1] == '1' ? '2' : '1';
  CHECK(near.meet("peer", elsewhere) == DONE && near.notify("peer", "note") == UNSUPPORTED);
  // The address gets another secret, which stands before the mailbox.
  Text stranger = peer.address;
  char &digit = stranger[stranger.rfind('-', stranger.rfind(' ')) - 1];
  digit = digit == '1' ? '2' : '1';
  CHECK(agent.meet("stranger", stranger) == DONE && agent.notify("stranger", "note") == GONE);

  CHECK(agent.import("peer", reinterpret_cast<uint64_t>(peer.bytes), Peer::LEN, peer.text, r) == DONE);
  CHECK(agent.prepare(WRITE, places(ours.data(), {{0, 4096}}, l), places(peer.bytes, {{0, 4096}}, r), "peer", handle) == DONE);
  CHECK(agent.post(WRITE, {}, {}, "peer", handle) >= DONE && agent.wait(handle) == DONE);
  CHECK(std::equal(ours.begin(), ours.end(), peer.bytes));
  peer.deregister();
  fill(ours, 6);
  const Bytes before(peer.bytes, peer.bytes + 4096);
  const int posted = agent.post(WRITE, {}, {}, "peer", handle);
  const int state = posted == IN_PROGRESS ? agent.wait(handle) : posted;
  // The peer can still be reached, but its memory cannot.
  CHECK(state < 0 && state != GONE && std::equal(before.begin(), before.end(), peer.bytes));
  CHECK(agent.free(handle) == DONE);
  agent.unload(r);
  CHECK(agent.remove(l) == DONE && near.remove(n) == DONE);
  peer.end();
}
