// Tests within a process: the table and options, transfers, and memory that is registered while they run.
#pragma once
#include "agent.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
