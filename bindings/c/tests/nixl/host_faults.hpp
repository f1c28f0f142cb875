// Tests of devices that fail, are lost or do not answer.
#pragma once
#include "host_local.hpp"
#include "pieces.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

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
