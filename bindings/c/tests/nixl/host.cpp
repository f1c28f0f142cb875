// Plays NIXL's part: calls the plugin by slot numbers, and reads members by offsets, without the plugin's declarations.
// ci/nixl.sh compares the slots with NIXL's own plugins.
//
//   host PLUGIN LIBNIXL NAME [LIBCUDA]    the test NAME; "refused": the plugin refuses this libnixl
#include "gpu_peer.hpp"
#include "peer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

// Does on the expected bytes what a transfer does: `ours` and `theirs` hold the offset and length of each piece.
static void apply(unsigned operation, Bytes &left, const std::vector<std::pair<size_t, size_t>> &ours, Bytes &right,
                  const std::vector<std::pair<size_t, size_t>> &theirs) {
  for (size_t at = 0; at < ours.size(); at++) {
    unsigned char *const one = left.data() + ours[at].first, *const other = right.data() + theirs[at].first;
    if (operation == WRITE)
      std::copy_n(one, ours[at].second, other);
    else
      std::copy_n(other, ours[at].second, one);
  }
}

static void table() {
  CHECK(plugin->version == 1);
  CHECK(!std::strcmp(plugin->name(), "DMA"));
  CHECK(std::strchr(plugin->release(), '.') != nullptr);
  CHECK(plugin->options().count("engine") == 1);
  CHECK((plugin->types() == std::vector<unsigned>{HOST, GPU}));
  Agent agent("me", {{"engine", "cpu"}});
  CHECK(!agent.failed());
  CHECK(*reinterpret_cast<Text *>(member(agent.engine, 8)) == "DMA");
  const Options in_force = *reinterpret_cast<Options *>(member(agent.engine, 40));
  CHECK(in_force.size() == 8 && in_force.at("engine") == "cpu" && in_force.at("stall_ms") == "30000" && in_force.at("answer_ms") == "30000");
  CHECK(!std::memcmp(member(agent.engine, 96), Bytes(64, 0).data(), 64)); // an empty vector, and a mutex
  CHECK(*reinterpret_cast<Text *>(member(agent.engine, 168)) == "me");
  for (const Slot slot : {supportsRemote, supportsLocal, supportsNotif})
    CHECK(call<bool>(agent.engine, slot));
  CHECK(call<std::vector<unsigned>>(agent.engine, getSupportedMems) == std::vector<unsigned>{HOST});
  Object none = nullptr;
  CHECK((call<int, Object, Object &, Object>(agent.engine, prepMemView, nullptr, none, nullptr) == UNSUPPORTED));
  CHECK((call<int, Object, Object &, Object>(agent.engine, prepMemView_, nullptr, none, nullptr) == UNSUPPORTED));
  call<void, Object>(agent.engine, releaseMemView, nullptr);
  CHECK((call<int, Object, Object>(agent.engine, queryMem, nullptr, nullptr) == UNSUPPORTED));
  CHECK((call<int, const Text &>(agent.engine, connect_, agent.name) == DONE));
  CHECK((call<int, const Text &>(agent.engine, connect_, "nobody") == NOT_FOUND));
  CHECK((call<int, const Text &>(agent.engine, disconnect, "nobody") == DONE));
  CHECK(agent.notify("nobody", "note") == NOT_FOUND);
  CHECK(!Agent("other", {{"engine_config", ""}}).failed());
  for (const Options &bad : {Options{{"engine", "none"}}, Options{{"engin", "cpu"}}, Options{{"engine_config", "x"}}, Options{{"ptrace", "all"}}, Options{{"stall_ms", "x"}}, Options{{"answer_ms", "0"}}, Options{{"answer_ms", "123456789"}}, Options{{"fallback", "sim"}}, Options{{"remote", "cpu"}},
                             Options{{"listen", "127.0.0.1"}}, Options{{"peers", "remote"}}, Options{{"remote", "cpu"}, {"listen", "eth0"}},
                             Options{{"remote", "cpu"}, {"listen", "127.0.0.1"}, {"peers", "all"}}})
    CHECK(Agent("bad", bad).failed());
}

// Prints the options that are in force in a backend whose program gives one of them.
static void options_in_force() {
  Agent agent("me", {{"stall_ms", "20000"}});
  CHECK(!agent.failed());
  for (const auto &[name, value] : *reinterpret_cast<Options *>(member(agent.engine, 40)))
    std::printf("%s is %s\n", name.c_str(), value.c_str());
  // The program passes on the defaults that the plugin announces.
  Agent second("second", plugin->options());
  CHECK(!second.failed());
  CHECK(reinterpret_cast<Options *>(member(second.engine, 40))->at("engine") == plugin->options().at("engine"));
}

static void within_a_process(const char *engine) {
  Agent agent("me", {{"engine", engine}});
  CHECK(!agent.failed());
  constexpr size_t LEN = 1 << 20, PIECES = 64, STEP = LEN / PIECES;
  Bytes left = pattern(LEN, 1), right = pattern(LEN, 2);
  const Bytes first = left;
  const Object l = agent.add(left), r = agent.add(right), view = agent.local(r);
  std::vector<std::pair<size_t, size_t>> from, to;
  for (size_t at = 0; at < PIECES; at++) {
    from.push_back({at * STEP + at, STEP / 2 + at});
    to.push_back({(PIECES - 1 - at) * STEP, STEP / 2 + at});
  }
  const List ours = places(left.data(), from, l), theirs = places(right.data(), to, view);
  Object handle = nullptr;
  CHECK(agent.prepare(WRITE, ours, theirs, "me", handle) == DONE);
  CHECK(agent.notes().empty());
  for (int round = 0; round < 3; round++) {
    const Text note = round == 1 ? "" : "round " + std::to_string(round);
    std::fill(right.begin(), right.end(), 0);
    CHECK(started(agent.post(WRITE, ours, theirs, "me", handle, note)));
    CHECK(agent.wait(handle) == DONE && agent.state(handle) == DONE && agent.state(handle) == DONE);
    for (size_t at = 0; at < PIECES; at++)
      CHECK(std::equal(&left[from[at].first], &left[from[at].first] + from[at].second, &right[to[at].first]));
    CHECK(left == first);
    CHECK(agent.notes() == (note.empty() ? Notes{} : Notes{{"me", note}}));
  }
  CHECK(agent.free(handle) == DONE);

  // The same in the other direction.
  fill(right, 3);
  const Bytes second = right;
  CHECK(agent.prepare(READ, ours, theirs, "me", handle) == DONE);
  CHECK(agent.post(READ, ours, theirs, "me", handle) >= DONE);
  CHECK(agent.wait(handle) == DONE);
  for (size_t at = 0; at < PIECES; at++)
    CHECK(std::equal(&left[from[at].first], &left[from[at].first] + from[at].second, &right[to[at].first]));
  CHECK(right == second);

  // More transfers than a queue has slots.
  std::vector<Object> handles(3000);
  for (Object &other : handles) {
    CHECK(agent.prepare(WRITE, places(left.data(), {{0, 64}}, l), places(right.data(), {{64, 64}}, view), "me", other) == DONE);
    CHECK(started(agent.post(WRITE, {}, {}, "me", other)));
  }
  for (const Object other : handles) {
    CHECK(agent.wait(other) == DONE);
    CHECK(agent.free(other) == DONE);
  }

  // Ranges that are not registered, differ in length, or are too few.
  Object bad = nullptr;
  CHECK(agent.prepare(WRITE, places(left.data(), {{0, 8}}, l), places(right.data(), {{0, 9}}, view), "me", bad) == INVALID);
  CHECK(agent.prepare(WRITE, places(left.data(), {{LEN - 4, 8}}, l), places(right.data(), {{0, 8}}, view), "me", bad) == INVALID);
  CHECK(agent.prepare(WRITE, places(left.data(), {{0, 8}}, l), places(right.data() - 1, {{0, 8}}, view), "me", bad) == INVALID);
  CHECK(agent.prepare(WRITE, places(left.data(), {{0, 8}, {8, 8}}, l), places(right.data(), {{0, 8}}, view), "me", bad) == INVALID);
  CHECK(agent.prepare(WRITE, {}, {}, "me", bad) == INVALID);
  CHECK(agent.add(left.data(), 8, bad, FILES) == UNSUPPORTED);
  CHECK(bad == nullptr);

  // Deregistering memory makes transfers that were prepared with it fail.
  agent.unload(view);
  CHECK(agent.remove(r) == DONE);
  CHECK(agent.post(READ, ours, theirs, "me", handle) == INVALID);
  CHECK(agent.free(handle) == DONE);
  CHECK(agent.remove(l) == DONE);
}

// NIXL 1.0.0 keeps views of deregistered memory, and uses them for memory that is registered later at the same address.
static void memory_is_registered_again() {
  Agent agent("me");
  Bytes from = pattern(4096, 1), to(4096);
  const Object l = agent.add(from), first = agent.add(to), view = agent.local(first);
  CHECK(agent.remove(first) == DONE);
  const List ours = places(from.data(), {{0, 4096}}, l), theirs = places(to.data(), {{0, 4096}}, view);
  Object handle = nullptr;
  CHECK(agent.prepare(WRITE, ours, theirs, "me", handle) < 0);
  Object half = nullptr;
  CHECK(agent.add(to.data(), 2048, half) == DONE);
  CHECK(agent.prepare(WRITE, ours, theirs, "me", handle) < 0);
  const Object second = agent.add(to);
  CHECK(agent.prepare(WRITE, ours, theirs, "me", handle) == DONE);
  CHECK(agent.post(WRITE, {}, {}, "me", handle) >= DONE && agent.wait(handle) == DONE);
  CHECK(from == to);
  CHECK(agent.remove(second) == DONE);
  CHECK(agent.post(WRITE, {}, {}, "me", handle) == INVALID && agent.free(handle) == DONE);
  CHECK(agent.remove(half) == DONE && agent.remove(l) == DONE);
  agent.unload(view);
}

// By default, NIXL does not lock, so it may make both calls at the same time.
static void a_transfer_is_released_while_its_memory_is_deregistered() {
  Agent agent("me", {{"engine", "sim:clock=real,latency=10ms"}});
  constexpr size_t LEN = 8 << 20;
  for (int round = 0; round < 20; round++) {
    Bytes from = pattern(LEN, 1), to(LEN);
    const Object l = agent.add(from), r = agent.add(to), view = agent.local(r);
    Object handle = nullptr;
    CHECK(agent.prepare(WRITE, places(from.data(), {{0, LEN}}, l), places(to.data(), {{0, LEN}}, view), "me", handle) == DONE);
    CHECK(agent.post_until_in_flight(WRITE, handle));
    std::thread other([&] { CHECK(agent.free(handle) == DONE); });
    CHECK(agent.remove(r) == DONE);
    other.join();
    CHECK(from == to);
    CHECK(agent.remove(l) == DONE);
    agent.unload(view);
  }
}

// NIXL ignores failures of these two functions, so they wait.
static void deregistering_and_releasing_wait() {
  for (const bool release : {false, true}) {
    Agent agent("me", {{"engine", "sim:clock=real,latency=200ms"}});
    constexpr size_t LEN = 64 << 20;
    Bytes from = pattern(LEN, 1), to(LEN);
    const Object l = agent.add(from), r = agent.add(to), view = agent.local(r);
    Object handle = nullptr;
    CHECK(agent.prepare(WRITE, places(from.data(), {{0, LEN}}, l), places(to.data(), {{0, LEN}}, view), "me", handle) == DONE);
    CHECK(agent.post_until_in_flight(WRITE, handle));
    CHECK(release ? agent.free(handle) == DONE : agent.remove(r) == DONE);
    CHECK(from == to);
    if (!release)
      CHECK(agent.state(handle) == DONE && agent.free(handle) == DONE);
    CHECK(release ? agent.remove(r) == DONE : true);
    CHECK(agent.remove(l) == DONE);
    agent.unload(view);
  }
}

// If a device does not answer, its queue is stopped, and its transfers fail. Then its memory can be deregistered, unless
// the device never stops using it.
static void transfers_of_a_stuck_device_fail() {
  for (const unsigned first : {0, 1, 2}) {
    Agent agent("me", {{"engine", "sim:faults=stick@1"}, {"stall_ms", "200"}});
    Bytes from = pattern(4096, 1), to(4096);
    const Object l = agent.add(from), r = agent.add(to), view = agent.local(r);
    Object handle = nullptr;
    CHECK(agent.prepare(WRITE, places(from.data(), {{0, 4096}}, l), places(to.data(), {{0, 4096}}, view), "me", handle) == DONE);
    CHECK(agent.post(WRITE, {}, {}, "me", handle) == IN_PROGRESS);
    if (first == 0)
      CHECK(agent.wait(handle) < 0);
    else if (first == 1)
      CHECK(agent.remove(r) == DONE);
    if (first != 2) {
      CHECK(agent.state(handle) < 0);
      CHECK(agent.post(WRITE, {}, {}, "me", handle) < 0);
    }
    CHECK(agent.free(handle) == DONE);
    if (first != 1)
      CHECK(agent.remove(r) == DONE);
    CHECK(agent.remove(l) == DONE);
    agent.unload(view);
  }
}

// Posts transfers of many pieces, with notifications. Checks after each that it ended as expected, that all bytes are right,
// and that a transfer that is done has sent its notification once.
static void transfers_with_faults(const Options &options, int rounds, int expected) {
  constexpr size_t PIECES = 64, STEP = 1000, LEN = PIECES * STEP;
  Agent agent("me", options);
  CHECK(!agent.failed());
  Bytes from = pattern(LEN, 1), to(LEN);
  const Object l = agent.add(from), r = agent.add(to), view = agent.local(r);
  std::vector<std::pair<size_t, size_t>> ours, theirs;
  for (size_t at = 0; at < PIECES; at++) {
    ours.push_back({at * STEP, STEP - at});
    theirs.push_back({(PIECES - 1 - at) * STEP, STEP - at});
  }
  Object handle = nullptr;
  CHECK(agent.prepare(WRITE, places(from.data(), ours, l), places(to.data(), theirs, view), "me", handle) == DONE);
  for (int round = 0; round < rounds; round++) {
    fill(from, static_cast<unsigned>(round));
    std::fill(to.begin(), to.end(), 0);
    const int posted = agent.post(WRITE, {}, {}, "me", handle, "note");
    CHECK((posted == IN_PROGRESS ? agent.wait(handle) : posted) == expected);
    CHECK(agent.notes() == (expected == DONE ? Notes{{"me", "note"}} : Notes{}));
    for (size_t at = 0; at < PIECES && expected == DONE; at++) {
      const unsigned char *piece = &to[theirs[at].first];
      CHECK(std::equal(piece, piece + ours[at].second, &from[ours[at].first]));
      CHECK(std::all_of(piece + ours[at].second, piece + STEP, [](unsigned char byte) { return byte == 0; }));
    }
  }
  CHECK(agent.notes().empty());
  CHECK(agent.free(handle) == DONE && agent.remove(l) == DONE && agent.remove(r) == DONE);
  agent.unload(view);
}

// Pieces whose sources and destinations are adjacent are one copy of the device, so this device fails at the second transfer.
static void adjacent_pieces_are_one_copy() {
  constexpr size_t PIECES = 300, LEN = 1 << 20;
  Agent agent("me", {{"engine", "sim:seed=7,faults=gone@2"}}), other("other", {{"engine", "sim:seed=7"}});
  Bytes from = pattern(LEN, 1), to(LEN);
  const Object l = agent.add(from), r = agent.add(to), view = agent.local(r);
  std::vector<std::pair<size_t, size_t>> ours, theirs;
  for (size_t at = 0; at < PIECES; at++) {
    ours.push_back({100 + at * 1000, 1000});
    theirs.push_back({at * 1000, 1000});
  }
  Object handle = nullptr;
  CHECK(agent.prepare(WRITE, places(from.data(), ours, l), places(to.data(), theirs, view), "me", handle) == DONE);
  CHECK(started(agent.post(WRITE, {}, {}, "me", handle)) && agent.wait(handle) == DONE);
  CHECK(std::equal(&to[0], &to[PIECES * 1000], &from[100]));
  const int posted = agent.post(WRITE, {}, {}, "me", handle);
  CHECK((posted == IN_PROGRESS ? agent.wait(handle) : posted) == FAILED);
  CHECK(agent.free(handle) == DONE && agent.remove(l) == DONE && agent.remove(r) == DONE);
  agent.unload(view);

  // Memory that is registered twice. As one copy, the pieces would overlap. The bytes repeat, so their order has no effect.
  Object low = nullptr, high = nullptr;
  CHECK(other.add(from.data(), 1 << 16, low) == DONE && other.add(from.data() + 4096, 1 << 16, high) == DONE);
  for (size_t at = 4096; at < LEN; at++)
    from[at] = from[at - 4096];
  const Bytes before = from;
  const Object high_view = other.local(high);
  CHECK(other.prepare(WRITE, places(from.data(), {{0, 4096}, {4096, 4096}}, low), places(from.data() + 4096, {{0, 4096}, {4096, 4096}}, high_view), "other", handle) == DONE);
  CHECK(started(other.post(WRITE, {}, {}, "other", handle)) && other.wait(handle) == DONE && from == before);
  CHECK(other.free(handle) == DONE && other.remove(low) == DONE && other.remove(high) == DONE);
  other.unload(high_view);

  // Runs of adjacent pieces, of pieces of which only one side is adjacent, and empty pieces.
  const Object a = other.add(from), b = other.add(to), b_view = other.local(b);
  uint64_t random = 7;
  const auto next = [&random] { return (random = random * 6364136223846793005u + 1442695040888963407u) >> 33; };
  const auto below = [&next](uint64_t end) { return next() % end; };
  for (int round = 0; round < 50; round++) {
    for (const unsigned operation : {WRITE, READ}) {
      ours.clear();
      theirs.clear();
      size_t left = 0, right = 0;
      for (size_t at = 0; at < PIECES; at++) {
        left += below(2) * below(500);
        right += below(2) * below(500);
        const size_t len = below(4) ? below(2000) : 0;
        ours.push_back({left, len});
        theirs.push_back({right, len});
        left += len;
        right += len;
      }
      fill(from, static_cast<unsigned>(2 * round));
      fill(to, static_cast<unsigned>(2 * round + 1));
      Bytes expected_left = from, expected_right = to;
      apply(operation, expected_left, ours, expected_right, theirs);
      CHECK(other.prepare(operation, places(from.data(), ours, a), places(to.data(), theirs, b_view), "other", handle) == DONE);
      CHECK(started(other.post(operation, {}, {}, "other", handle)) && other.wait(handle) == DONE);
      CHECK(from == expected_left && to == expected_right);
      CHECK(other.free(handle) == DONE);
    }
  }
  CHECK(other.remove(a) == DONE && other.remove(b) == DONE);
  other.unload(b_view);
}

// Failed pieces are tried again as their errors advise. `verify` finds wrong bytes, which are copied again.
static void failed_pieces_are_tried_again() {
  for (const char *faults : {"fail@1", "fail@5+fail@6+fail@64", "fail:p=0.1", "reset@20", "reset@10+fail@3", "refuse@7", "refuse:p=0.2", "fail:p=0.05+refuse:p=0.05"})
    transfers_with_faults({{"engine", Text("sim:seed=7,faults=") + faults}}, 10, DONE);
  transfers_with_faults({{"engine", "verify+sim:seed=7,faults=corrupt:p=0.05"}}, 10, DONE);
}

// Engines that consist of other engines.
static void engines_of_engines() {
  const Text file = "/tmp/dma-nixl." + std::to_string(getpid()) + ".trace";
  for (const Text &engine : std::vector<Text>{"auto:device=none", "auto:device=sim:seed=7", "auto:device=sim:seed=7,prefer=device",
                                              "verify+cpu", "verify+sim:seed=7", "meter+verify+auto:device=sim:seed=7",
                                              "auto:device=verify+sim:seed=7,prefer=device", "record+cpu:file=" + file})
    within_a_process(engine.c_str());
  CHECK(unlink(file.c_str()) == 0);
  // `auto` itself copies by the CPU what its device has failed.
  for (const char *faults : {"gone@20", "fail", "reset@30"})
    transfers_with_faults({{"engine", Text("auto:prefer=device,device=sim:seed=7;faults=") + faults}}, 5, DONE);
  transfers_with_faults({{"engine", "auto:prefer=device,device=verify+sim:seed=7;faults=corrupt:p=0.1"}}, 5, DONE);
  for (const char *engine : {"verify", "verify+none", "verify+verify+cpu", "auto:device=cpu", "record+cpu"})
    CHECK(Agent("bad", {{"engine", engine}}).failed());
}

// A piece that always fails makes the transfer fail, after the attempts that the errors allow.
static void a_fault_that_remains_is_an_error() {
  for (const char *faults : {"fail", "gone@20"})
    transfers_with_faults({{"engine", Text("sim:seed=7,faults=") + faults}}, 2, FAILED);
  transfers_with_faults({{"engine", "sim:faults=refuse"}}, 1, FAILED);
}

// The CPU copies the pieces that a lost device has not copied, and all later transfers.
static void the_cpu_takes_over_from_a_lost_device() {
  transfers_with_faults({{"engine", "sim:seed=7,faults=gone@20"}, {"fallback", "cpu"}}, 3, DONE);
  transfers_with_faults({{"engine", "sim:seed=7,faults=gone@150"}, {"fallback", "cpu"}}, 5, DONE);
  transfers_with_faults({{"engine", "sim:faults=stick@20"}, {"stall_ms", "200"}, {"fallback", "cpu"}}, 3, DONE);
}

// The time of a transfer is estimated from earlier ones: from none, from one of its own size, and from other sizes.
static void estimates_come_from_earlier_transfers() {
  Agent agent("me", {{"engine", "sim:seed=7"}});
  Bytes from = pattern(1 << 20, 1), to(1 << 20);
  const Object l = agent.add(from), r = agent.add(to), view = agent.local(r);
  const auto prepared = [&](unsigned operation, size_t len) {
    Object handle = nullptr;
    CHECK(agent.prepare(operation, places(from.data(), {{0, len}}, l), places(to.data(), {{0, len}}, view), "me", handle) == DONE);
    return handle;
  };
  struct Cost {
    int state;
    int64_t time, margin;
    int method;
  };
  const auto estimate = [&](unsigned operation, Object handle) {
    Cost cost{0, -1, -1, -1};
    const List none;
    cost.state = call<int, const unsigned &, const List &, const List &, const Text &, Object const &, int64_t &, int64_t &, int &, const Post *>(
        agent.engine, estimateXferCost, operation, none, none, agent.name, handle, cost.time, cost.margin, cost.method, nullptr);
    return cost;
  };
  const Object small = prepared(WRITE, 1000), large = prepared(WRITE, 1 << 20), back = prepared(READ, 1000);
  CHECK(estimate(WRITE, nullptr).state == INVALID && estimate(WRITE, small).state == NOT_FOUND);
  for (int count = 0; count < 5; count++) {
    Object handle = small;
    CHECK(started(agent.post(WRITE, {}, {}, "me", handle)) && agent.wait(handle) == DONE);
  }
  const Cost own = estimate(WRITE, small), other = estimate(WRITE, large);
  CHECK(own.state == DONE && own.time > 0 && own.margin >= 0 && own.method == 0);
  // 1,000 has 10 bits, and 1 MiB has 21.
  CHECK(other.state == DONE && other.time > 2000 * (own.time - 1) && other.time <= 2048 * own.time && other.margin == other.time);
  CHECK(estimate(READ, back).state == NOT_FOUND);
  for (const Object handle : {small, large, back})
    CHECK(agent.free(handle) == DONE);
  CHECK(agent.remove(l) == DONE && agent.remove(r) == DONE);
  agent.unload(view);
}

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
// this machine was stopped for that long, the test is repeated.
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
    CHECK(agent.post(WRITE, {}, {}, "stopped", handles[0]) == IN_PROGRESS);
    const auto start = std::chrono::steady_clock::now();
    CHECK(started(agent.post(WRITE, {}, {}, "other", handles[1], "note")) && agent.wait(handles[1]) == DONE);
    longest = seconds_since(start);
    CHECK(agent.state(handles[0]) == IN_PROGRESS && std::equal(ours.begin(), ours.end(), other.bytes));
    kill(stopped.pid, SIGCONT);
    CHECK(agent.wait(handles[0]) == DONE && std::equal(ours.begin(), ours.end(), stopped.bytes));
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

// Memory of a GPU, in all directions.
static void memory_of_a_gpu(const char *libcuda, const char *engine) {
  const Gpu cuda(libcuda);
  constexpr size_t LEN = 1 << 20;
  const uint64_t gpu = cuda.allocate(2 * LEN);
  Agent agent("me", {{"engine", engine}});
  CHECK(!agent.failed());
  CHECK((call<std::vector<unsigned>>(agent.engine, getSupportedMems) == std::vector<unsigned>{HOST, GPU}));
  Bytes from = pattern(LEN, 1), to(LEN);
  const Object a = agent.add(from), b = agent.add(to), b_view = agent.local(b);
  Object g = nullptr;
  CHECK(agent.add(reinterpret_cast<void *>(gpu), 2 * LEN, g, GPU) == DONE);
  const Object g_view = agent.local(g);
  // Copies to the GPU, within it, and back.
  const auto transfer = [&](const List &source, const List &destination) {
    Object handle = nullptr;
    CHECK(agent.prepare(WRITE, source, destination, "me", handle) == DONE);
    CHECK(agent.post(WRITE, source, destination, "me", handle) >= DONE && agent.wait(handle) == DONE);
    CHECK(agent.free(handle) == DONE);
  };
  const void *on_gpu = reinterpret_cast<void *>(gpu);
  transfer(places(from.data(), {{0, LEN}}, a), places(on_gpu, {{0, LEN}}, g_view));
  transfer(places(on_gpu, {{0, LEN / 2}, {LEN / 2, LEN / 2}}, g), places(on_gpu, {{LEN + LEN / 2, LEN / 2}, {LEN, LEN / 2}}, g_view));
  transfer(places(on_gpu, {{LEN, LEN}}, g), places(to.data(), {{0, LEN}}, b_view));
  CHECK(std::equal(&from[0], &from[LEN / 2], &to[LEN / 2]) && std::equal(&from[LEN / 2], &from[0] + LEN, &to[0]));
  for (const Object view : {b_view, g_view})
    agent.unload(view);
  CHECK(agent.remove(a) == DONE && agent.remove(b) == DONE && agent.remove(g) == DONE);
  cuda.release(gpu);
}

// After a GPU was lost, it is unknown whether it still writes. So the CPU takes over transfers with other memory only, and
// none with memory of the GPU, which it cannot reach.
static void the_cpu_takes_over_from_a_lost_gpu(const char *libcuda) {
  const Gpu cuda(libcuda);
  const uint64_t gpu = cuda.allocate(4096);
  Agent agent("me", {{"engine", "cuda"}, {"fallback", "cpu"}, {"stall_ms", "200"}});
  Bytes lost = pattern(4096, 1), from = pattern(4096, 1), to(4096);
  Object g = nullptr;
  CHECK(agent.add(reinterpret_cast<void *>(gpu), 4096, g, GPU) == DONE);
  const Object o = agent.add(lost), l = agent.add(from), r = agent.add(to);
  const auto transfer = [&](const Bytes &ours, Object left, const void *theirs, Object right) {
    const Object view = agent.local(right);
    Object handle = nullptr;
    CHECK(agent.prepare(WRITE, places(ours.data(), {{0, 4096}}, left), places(theirs, {{0, 4096}}, view), "me", handle) == DONE);
    const int posted = agent.post(WRITE, {}, {}, "me", handle, "note"), state = posted == IN_PROGRESS ? agent.wait(handle) : posted;
    CHECK(agent.free(handle) == DONE);
    agent.unload(view);
    return state;
  };
  const void *on_gpu = reinterpret_cast<void *>(gpu);
  CHECK(transfer(lost, o, on_gpu, g) == FAILED);
  CHECK(transfer(from, l, to.data(), r) == DONE && from == to);
  CHECK(agent.notes() == (Notes{{"me", "note"}}));
  CHECK(transfer(from, l, on_gpu, g) == FAILED && transfer(lost, o, to.data(), r) == FAILED);
  CHECK(agent.notes().empty());
  // Deregistering memory that the GPU may still write would end the program.
  std::puts(wrong ? "wrong" : "right");
  std::fflush(stdout);
  _exit(wrong);
}

// Returns the memory object of a peer's device memory.
static Object import_of(Agent &agent, const GpuPeer &peer, uint64_t skipped = 0, const Text &name = "peer") {
  Object memory = nullptr;
  CHECK(agent.meet(name, peer.address) == DONE);
  CHECK(agent.import(name, peer.gpu + skipped, GpuPeer::LEN - skipped, peer.text, memory, GPU) == DONE);
  return memory;
}

// Device memory of two processes: copies between this process's memory of both kinds and the peer's, in both directions, each
// in many pieces, with a notification after the last byte. With `FAR`, the processes are as if on two hosts, so that this
// process's device memory is also copied to and from a peer's host memory.
static void device_memory_of_two_processes(const char *libcuda, Options options) {
  constexpr size_t LEN = GpuPeer::LEN, PIECES = 64, STEP = LEN / PIECES;
  const bool is_far = !options.empty();
  Peer host_peer(is_far ? FAR : Options{});
  GpuPeer peer(libcuda, nullptr, 0, false, options);
  const Gpu cuda(libcuda);
  const uint64_t gpu = cuda.allocate(LEN);
  options["engine"] = "cuda";
  Agent agent("me", options);
  Bytes host = pattern(LEN, 1);
  Object g = nullptr;
  CHECK(agent.add(reinterpret_cast<void *>(gpu), LEN, g, GPU) == DONE);
  const Object h = agent.add(host), r = import_of(agent, peer), again = import_of(agent, peer);
  agent.unload(again);
  std::vector<std::pair<size_t, size_t>> from, to;
  for (size_t at = 0; at < PIECES; at++) {
    from.push_back({at * STEP, STEP - at});
    to.push_back({(PIECES - 1 - at) * STEP + at, STEP - at});
  }
  const void *on_gpu = reinterpret_cast<void *>(gpu);
  const List theirs = places(reinterpret_cast<void *>(peer.gpu), to, r);
  unsigned seed = 2;
  for (const bool device : {false, true})
    for (const unsigned operation : {WRITE, READ}) {
      const List ours = device ? places(on_gpu, from, g) : places(host.data(), from, h);
      Bytes left = pattern(LEN, seed++), right = pattern(LEN, seed);
      host = left;
      cuda.write(gpu, left);
      peer.fill_with(seed++);
      Object handle = nullptr;
      CHECK(agent.prepare(operation, ours, theirs, "peer", handle) == DONE);
      const Text note = "after " + std::to_string(seed);
      for (int round = 0; round < 2; round++) {
        CHECK(started(agent.post(operation, {}, {}, "peer", handle, note)) && agent.wait(handle) == DONE);
        CHECK(peer.notification() == note);
      }
      CHECK(agent.free(handle) == DONE);
      apply(operation, left, from, right, to);
      CHECK(peer.has(right) && left == (device ? cuda.read(gpu, LEN) : host));
    }
  CHECK(peer.extra_notifications() == "0");
  // The peer writes into device memory of this process.
  peer.fill_with(77);
  CHECK(peer.write_to(agent, reinterpret_cast<void *>(gpu), g) == DONE);
  CHECK(cuda.read(gpu, LEN) == pattern(LEN, 77) && agent.wait_notes(1) == (Notes{{"peer", "from the peer"}}));
  // Ranges that the peer has not registered, and host memory of a peer as the other side of device memory.
  Object bad = nullptr;
  CHECK(agent.prepare(WRITE, places(host.data(), {{0, 8}}, h), places(reinterpret_cast<void *>(peer.gpu - 8), {{0, 8}}, r), "peer", bad) == INVALID);
  Object dram = nullptr;
  CHECK(agent.import("peer", 1 << 20, 4096, "1", dram) == DONE);
  CHECK(agent.prepare(WRITE, places(on_gpu, {{0, 8}}, g), places(reinterpret_cast<void *>(1 << 20), {{0, 8}}, dram), "peer", bad) == UNSUPPORTED);
  // Host memory of a peer, which another host reaches.
  Object theirs_on_host = nullptr;
  CHECK(agent.meet("host", host_peer.address) == DONE);
  CHECK(agent.import("host", reinterpret_cast<uint64_t>(host_peer.bytes), Peer::LEN, host_peer.text, theirs_on_host) == DONE);
  const List ours_on_gpu = places(on_gpu, from, g), on_host = places(host_peer.bytes, to, theirs_on_host);
  for (const unsigned operation : {WRITE, READ}) {
    Bytes left = pattern(LEN, seed++), right = pattern(LEN, seed++);
    cuda.write(gpu, left);
    std::copy(right.begin(), right.end(), host_peer.bytes);
    Object handle = nullptr;
    CHECK(agent.prepare(operation, ours_on_gpu, on_host, "host", handle) == (is_far ? DONE : UNSUPPORTED));
    if (!is_far)
      continue;
    CHECK(started(agent.post(operation, {}, {}, "host", handle)) && agent.wait(handle) == DONE && agent.free(handle) == DONE);
    apply(operation, left, from, right, to);
    CHECK(cuda.read(gpu, LEN) == left && std::equal(right.begin(), right.end(), host_peer.bytes));
  }
  agent.unload(theirs_on_host);
  // An engine without device memory.
  Agent other("other");
  const Object o = other.add(host), view = import_of(other, peer);
  CHECK(other.prepare(WRITE, places(host.data(), {{0, 8}}, o), places(reinterpret_cast<void *>(peer.gpu), {{0, 8}}, view), "peer", bad) == UNSUPPORTED);
  other.unload(view);
  // Another agent of this process.
  Agent second("second", {{"engine", "cuda"}});
  Object s = nullptr, handle = nullptr;
  Bytes others = pattern(LEN, 99);
  const Object t = second.add(others);
  CHECK(second.meet("me", agent.address()) == DONE && agent.meet("second", second.address()) == DONE);
  CHECK(second.import("me", gpu, LEN, agent.describe(g), s, GPU) == DONE);
  CHECK(second.prepare(WRITE, places(others.data(), {{0, LEN}}, t), places(on_gpu, {{0, LEN}}, s), "me", handle) == DONE);
  CHECK(started(second.post(WRITE, {}, {}, "me", handle)) && second.wait(handle) == DONE && cuda.read(gpu, LEN) == others);
  CHECK(second.free(handle) == DONE && second.remove(t) == DONE && other.remove(o) == DONE);
  for (const Object each : {r, dram})
    agent.unload(each);
  second.unload(s);
  CHECK(agent.remove(h) == DONE && agent.remove(g) == DONE);
  cuda.release(gpu);
  // The second process has the ends of the first one's pipes.
  peer.end();
  host_peer.end();
}

// A peer deregisters its device memory or ends, before a transfer and during one. The copy takes long enough to be in flight
// when the peer does so; its completion is taken afterwards in any case.
static void lost_device_memory_of_a_peer_is_an_error(const char *libcuda) {
  enum Loss { DEREGISTERED, FREED, KILLED };
  constexpr Loss LOSSES[] = {DEREGISTERED, FREED, KILLED};
  std::vector<std::unique_ptr<GpuPeer>> peers;
  for (int count = 0; count < 6; count++)
    peers.push_back(std::make_unique<GpuPeer>(libcuda));
  Agent agent("me", {{"engine", "cuda"}});
  Bytes host = pattern(GpuPeer::LEN, 1);
  const Object h = agent.add(host);
  for (size_t number = 0; number < peers.size(); number++) {
    GpuPeer &peer = *peers[number];
    const Text name = "peer " + std::to_string(number);
    const Loss loss = LOSSES[number / 2];
    const int expected = loss == KILLED ? GONE : INVALID;
    const Object r = import_of(agent, peer, 0, name);
    const List theirs = places(reinterpret_cast<void *>(peer.gpu), {{0, GpuPeer::LEN}}, r), ours = places(host.data(), {{0, GpuPeer::LEN}}, h);
    Object handle = nullptr;
    CHECK(agent.prepare(WRITE, ours, theirs, name, handle) == DONE);
    CHECK(started(agent.post(WRITE, {}, {}, name, handle)) && agent.wait(handle) == DONE && peer.has(host));
    const bool in_flight = number % 2;
    // If this process is stopped for long, the transfer ends within the call, and is posted again.
    int posted = in_flight ? DONE : NOT_FOUND;
    for (int count = 0; count < 100 && posted == DONE; count++)
      posted = agent.post(WRITE, {}, {}, name, handle);
    CHECK(posted == (in_flight ? IN_PROGRESS : NOT_FOUND));
    if (loss == DEREGISTERED)
      peer.deregister();
    else if (loss == FREED)
      peer.free_memory();
    else
      peer.kill_now();
    CHECK(!in_flight || agent.wait(handle) == expected);
    CHECK(agent.post(WRITE, {}, {}, name, handle, "note") == expected && agent.state(handle) == expected);
    CHECK(agent.free(handle) == DONE);
    if (loss != KILLED)
      CHECK(peer.extra_notifications() == "0");
    // It is imported again, by its old description.
    agent.unload(r);
    const Object again = import_of(agent, peer, 0, name);
    const int prepared = agent.prepare(WRITE, ours, places(reinterpret_cast<void *>(peer.gpu), {{0, GpuPeer::LEN}}, again), name, handle);
    if (prepared == DONE) {
      CHECK(loss != KILLED && agent.post(WRITE, {}, {}, name, handle) == INVALID && agent.free(handle) == DONE);
    } else {
      CHECK(prepared < 0);
    }
    agent.unload(again);
    if (loss != KILLED)
      peer.end();
  }
  CHECK(agent.remove(h) == DONE);
}

// Memory of a GPU that this process does not see, of another GPU that it sees, and memory without a handle.
static void device_memory_that_cannot_be_opened(const char *libcuda) {
  constexpr const char *TWO = "[[gpu]]\nname = 'one'\n[[gpu]]\nname = 'two'\n";
  const bool sees_two = std::getenv("CUDA_EMU") && std::strstr(std::getenv("CUDA_EMU"), "two");
  GpuPeer second(libcuda, TWO, 1), pooled(libcuda, TWO, 0, true);
  Agent agent("me", {{"engine", "cuda:0"}});
  Bytes host = pattern(GpuPeer::LEN, 1);
  const Object h = agent.add(host);
  const List ours = places(host.data(), {{0, GpuPeer::LEN}}, h);
  for (GpuPeer *peer : {&second, &pooled}) {
    const Object r = import_of(agent, *peer);
    Object handle = nullptr;
    const int prepared = agent.prepare(WRITE, ours, places(reinterpret_cast<void *>(peer->gpu), {{0, GpuPeer::LEN}}, r), "peer", handle);
    if (peer == &second && sees_two) {
      CHECK(prepared == DONE);
      CHECK(started(agent.post(WRITE, {}, {}, "peer", handle)) && agent.wait(handle) == DONE && peer->has(host));
      CHECK(agent.free(handle) == DONE);
    } else {
      CHECK(prepared == UNSUPPORTED);
    }
    agent.unload(r);
  }
  // A description that is not whole.
  Object r = nullptr, handle = nullptr;
  for (const Text &text : {second.text.substr(0, second.text.size() / 2), Text("1"), Text("1 - 2 3 cuda zz yy 0")}) {
    CHECK(agent.import("peer", second.gpu, GpuPeer::LEN, text, r, GPU) == DONE);
    CHECK(agent.prepare(WRITE, ours, places(reinterpret_cast<void *>(second.gpu), {{0, GpuPeer::LEN}}, r), "peer", handle) == MISMATCH);
    agent.unload(r);
  }
  CHECK(agent.remove(h) == DONE);
  second.end();
  pooled.end();
}

// If a device never stops using memory, the plugin ends the program before the memory is freed.
static void a_lost_device_ends_the_program() {
  Agent agent("me", {{"engine", "cuda"}, {"stall_ms", "200"}});
  Bytes from = pattern(4096, 1), to(4096);
  const Object l = agent.add(from), r = agent.add(to), view = agent.local(r);
  Object handle = nullptr;
  CHECK(agent.prepare(WRITE, places(from.data(), {{0, 4096}}, l), places(to.data(), {{0, 4096}}, view), "me", handle) == DONE);
  CHECK(agent.post(WRITE, {}, {}, "me", handle) == IN_PROGRESS);
  CHECK(agent.wait(handle) < 0);
  CHECK(agent.post(WRITE, {}, {}, "me", handle) < 0);
  CHECK(agent.free(handle) == DONE);
  std::puts(wrong ? "wrong" : "its transfer has failed");
  std::fflush(stdout);
  CHECK(agent.remove(r) != DONE);
}

int main(int argc, char **argv) {
  if (argc < 4)
    return 2;
  const Text name = argv[3];
  alarm(300);
  if (Text(argv[2]) != "none" && !dlopen(argv[2], RTLD_NOW)) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  plugin = reinterpret_cast<const Plugin *(*)()>(dlsym(library, "nixl_plugin_init"))();
  CHECK((plugin == nullptr) == (name == "refused"));
  if (plugin) {
    const char *libcuda = argc > 4 ? argv[4] : "libcuda.so.1";
    const std::map<Text, std::function<void()>> tests{
        {"table", table},
        {"options", options_in_force},
        {"local", [] { within_a_process("cpu"); within_a_process("sim:seed=7"); }},
        {"waits", deregistering_and_releasing_wait},
        {"again", memory_is_registered_again},
        {"threads", a_transfer_is_released_while_its_memory_is_deregistered},
        {"stuck", transfers_of_a_stuck_device_fail},
        {"fault", a_fault_that_remains_is_an_error},
        {"adjacent", adjacent_pieces_are_one_copy},
        {"estimates", estimates_come_from_earlier_transfers},
        {"retries", failed_pieces_are_tried_again},
        {"wrappers", engines_of_engines},
        {"fallback", the_cpu_takes_over_from_a_lost_device},
        {"peers", [] { between_processes({}); }},
        {"killed", [] { killed_and_stopped_peers_are_errors({}); }},
        {"far", [] { between_processes(FAR); peers_on_other_hosts_grant_what_they_registered(); }},
        {"far_killed", [] { killed_and_stopped_peers_are_errors(FAR); }},
        {"far_stopped", a_stopped_peer_delays_no_other_peer},
        {"taken", a_taken_mailbox_gets_nothing},
        {"sleeps", waiting_for_a_mailbox_sleeps},
        {"unreachable", unreachable_peers_are_errors},
        {"lost", a_lost_device_ends_the_program},
        {"gpu", [&] { memory_of_a_gpu(libcuda, "cuda"); }},
        {"gpu_wrapped", [&] { memory_of_a_gpu(libcuda, "verify+cuda"); memory_of_a_gpu(libcuda, "auto:device=cuda"); }},
        {"gpu_peer", [&] { device_memory_of_two_processes(libcuda, {}); }},
        {"gpu_far", [&] { device_memory_of_two_processes(libcuda, FAR); }},
        {"gpu_peer_gone", [&] { lost_device_memory_of_a_peer_is_an_error(libcuda); }},
        {"gpu_refused", [&] { device_memory_that_cannot_be_opened(libcuda); }},
        {"gpu_lost", [&] { the_cpu_takes_over_from_a_lost_gpu(libcuda); }},
    };
    for (const auto &[each, test] : tests)
      if (each == name || (name == "all" && each.substr(0, 3) != "gpu" && each != "lost" && each.substr(0, 3) != "far"))
        test();
    CHECK(name == "all" || tests.count(name) == 1);
    reinterpret_cast<void (*)()>(dlsym(library, "nixl_plugin_fini"))();
  }
  std::puts(wrong ? "wrong" : "right");
  return wrong;
}
