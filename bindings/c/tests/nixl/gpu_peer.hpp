// Another process with memory of a GPU. It does what this process asks for, so no test waits for a time.
#pragma once
#include "gpu.hpp"

#include <csignal>
#include <sstream>
#include <sys/wait.h>

class GpuPeer {
public:
  static constexpr size_t LEN = 1 << 20;
  // The registered memory is in the middle of an allocation.
  static constexpr size_t BEFORE = 5000;

  // Starts the process. `config` is the configuration of its stand-in driver, `device` its GPU, and `options` those of its agent
  // in addition to the engine. Must be called before this process uses CUDA.
  explicit GpuPeer(const char *libcuda, const char *config = nullptr, int device = 0, bool from_pool = false, Options options = {}) {
    int up[2], down[2];
    CHECK(pipe(up) == 0 && pipe(down) == 0);
    std::fflush(stdout);
    pid = fork();
    if (pid == 0) {
      close(up[0]);
      close(down[1]);
      if (config)
        setenv("CUDA_EMU", config, 1);
      options["engine"] = "cuda:" + std::to_string(device);
      serve(libcuda, device, from_pool, options, down[0], up[1]);
      _exit(wrong);
    }
    close(up[1]);
    close(down[0]);
    in_ = up[0];
    out_ = down[1];
    std::istringstream start(receive());
    start >> gpu;
    std::getline(start >> std::ws, text);
    address = receive();
  }
  ~GpuPeer() {
    close(in_);
    close(out_);
  }
  GpuPeer(const GpuPeer &) = delete;
  GpuPeer &operator=(const GpuPeer &) = delete;

  // The peer fills its memory with a pattern.
  void fill_with(unsigned seed) { CHECK(ask("fill " + std::to_string(seed)) == "done"); }
  // Returns whether the bytes of the peer's memory are these.
  bool has(const Bytes &bytes) { return ask("read") == Text(bytes.begin(), bytes.end()); }
  // Waits for the peer's next notification, and returns it.
  Text notification() { return ask("notification"); }
  Text extra_notifications() { return ask("notifications"); }
  void deregister() { CHECK(ask("deregister") == "done"); }
  void free_memory() { CHECK(ask("free") == "done"); }
  // The peer writes its memory to memory of this process. Returns the state of the transfer.
  int write_to(Agent &me, void *to, Object memory) {
    std::ostringstream request;
    request << "write " << reinterpret_cast<uint64_t>(to) << ' ' << me.describe(memory) << '\n' << me.address();
    return std::stoi(ask(request.str()));
  }
  void end() {
    CHECK(ask("end") == "done");
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  void kill_now() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  pid_t pid;
  uint64_t gpu = 0;
  Text text, address;

private:
  static void send(int to, const Text &message) {
    const uint64_t len = message.size();
    Text bytes(reinterpret_cast<const char *>(&len), sizeof len);
    bytes += message;
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::write(to, bytes.data() + at, bytes.size() - at);
      if (sent <= 0)
        _exit(1);
      at += static_cast<size_t>(sent);
    }
  }
  static bool read_all(int from, void *to, size_t len) {
    for (size_t at = 0; at < len;) {
      const ssize_t part = ::read(from, static_cast<char *>(to) + at, len - at);
      if (part <= 0)
        return false;
      at += static_cast<size_t>(part);
    }
    return true;
  }
  static Text receive_from(int from) {
    uint64_t len = 0;
    if (!read_all(from, &len, sizeof len))
      return "";
    Text message(len, '\0');
    return read_all(from, message.data(), len) ? message : "";
  }
  Text receive() const { return receive_from(in_); }
  Text ask(const Text &request) {
    send(out_, request);
    return receive();
  }

  static void serve(const char *libcuda, int device, bool from_pool, const Options &options, int from, int to) {
    const Gpu cuda(libcuda, device);
    uint64_t start = from_pool ? cuda.allocate_from_pool(LEN + 2 * BEFORE) : cuda.allocate(LEN + 2 * BEFORE);
    const uint64_t gpu = start + BEFORE;
    Agent agent("peer", options);
    CHECK(!agent.failed());
    Object memory = nullptr;
    CHECK(agent.add(reinterpret_cast<void *>(gpu), LEN, memory, GPU) == DONE);
    send(to, std::to_string(gpu) + " " + agent.describe(memory));
    send(to, agent.address());
    for (;;) {
      const Text request = receive_from(from);
      std::istringstream words(request);
      Text word;
      words >> word;
      if (word == "fill") {
        unsigned seed = 0;
        words >> seed;
        cuda.write(gpu, pattern(LEN, seed));
        send(to, "done");
      } else if (word == "read") {
        const Bytes bytes = cuda.read(gpu, LEN);
        send(to, Text(bytes.begin(), bytes.end()));
      } else if (word == "notification") {
        const Notes notes = agent.wait_notes(1);
        send(to, notes.size() == 1 && notes[0].first == "me" ? notes[0].second : "another number of notifications");
      } else if (word == "notifications") {
        send(to, std::to_string(agent.notes().size()));
      } else if (word == "write") {
        uint64_t address = 0;
        Text text, me;
        std::getline(words >> address >> std::ws, text);
        std::getline(words, me);
        Object theirs = nullptr, handle = nullptr;
        CHECK(agent.meet("me", me) == DONE && agent.import("me", address, LEN, text, theirs, GPU) == DONE);
        const void *ours = reinterpret_cast<void *>(gpu), *other = reinterpret_cast<void *>(address);
        int state = agent.prepare(WRITE, places(ours, {{0, LEN}}, memory), places(other, {{0, LEN}}, theirs), "me", handle);
        if (state == DONE)
          state = agent.post(WRITE, {}, {}, "me", handle, "from the peer");
        if (state == IN_PROGRESS)
          state = agent.wait(handle);
        if (handle)
          CHECK(agent.free(handle) == DONE);
        agent.unload(theirs);
        send(to, std::to_string(state));
      } else {
        if (memory)
          CHECK(agent.remove(memory) == DONE);
        memory = nullptr;
        if (word != "deregister" && start != 0)
          cuda.release(start), start = 0;
        send(to, "done");
        if (word != "deregister" && word != "free")
          return;
      }
    }
  }

  int in_, out_;
};
