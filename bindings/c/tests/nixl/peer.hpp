// Another process with an agent.
#pragma once
#include "agent.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// Another process, whose memory is also mapped in this process.
struct Peer {
  static constexpr size_t LEN = 64 << 20;
  explicit Peer(const Options &options = {}) {
    bytes = static_cast<unsigned char *>(mmap(nullptr, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int up[2], down[2], back[2];
    CHECK(bytes != MAP_FAILED && pipe(up) == 0 && pipe(down) == 0 && pipe(back) == 0);
    std::fflush(stdout);
    pid = fork();
    if (pid == 0) {
      close(up[0]);
      close(down[1]);
      Agent agent("peer", options);
      Object memory = nullptr;
      CHECK(agent.add(bytes, LEN, memory) == DONE);
      const Text text = agent.describe(memory) + "\n" + agent.address();
      CHECK(write(up[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
      close(up[1]);
      // Sends notifications back, until the parent closes the pipe.
      char request[1024];
      const ssize_t len = read(down[0], request, sizeof request);
      if (len > 0 && request[0] != '-') {
        CHECK(agent.meet("me", Text(request, static_cast<size_t>(len))) == DONE);
        for (const auto &[from, note] : agent.wait_notes(4))
          CHECK(from == "me" && agent.notify("me", "got " + note) == DONE);
        CHECK(read(down[0], request, 1) == 0);
      }
      CHECK(agent.remove(memory) == DONE);
      if (len > 0 && request[0] == '-') {
        // The peer continues after its memory is deregistered.
        CHECK(write(back[1], "-", 1) == 1 && read(down[0], request, 1) == 0);
        CHECK(agent.notes().empty());
      }
      _exit(wrong);
    }
    close(up[1]);
    close(down[0]);
    close(back[1]);
    output = back[0];
    input = down[1];
    Text all;
    char part[256];
    for (ssize_t len; (len = read(up[0], part, sizeof part)) > 0;)
      all.append(part, static_cast<size_t>(len));
    close(up[0]);
    text = all.substr(0, all.find('\n'));
    address = all.substr(all.find('\n') + 1);
  }
  ~Peer() {
    munmap(bytes, LEN);
    close(output);
  }
  // The peer deregisters its memory.
  void deregister() {
    char byte;
    CHECK(write(input, "-", 1) == 1 && read(output, &byte, 1) == 1);
  }
  void end() {
    close(input);
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  void kill_now() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    close(input);
  }

  unsigned char *bytes;
  pid_t pid;
  int input, output;
  Text text, address;
};

// As if on two hosts: all peers are reached by the engine for other hosts.
static const Options FAR{{"remote", "rdma"}, {"listen", "127.0.0.1"}, {"peers", "remote"}};
