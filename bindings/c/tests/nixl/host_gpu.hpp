// Tests of memory of a GPU, of this process and of other processes.
#pragma once
#include "gpu_peer.hpp"
#include "peer.hpp"
#include "pieces.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
