// Starts the plugin's threads.
#pragma once
#include <csignal>
#include <thread>
#include <utility>

namespace dma_nixl {

// Starts a thread that blocks all signals except faults, so that the kernel delivers the program's signals to the
// program's own threads.
template <class Body> std::thread start_thread(Body &&body) {
  class Blocked {
  public:
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      for (int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
        sigdelset(&all, fault);
      pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    Blocked(const Blocked &) = delete;
    Blocked &operator=(const Blocked &) = delete;

  private:
    sigset_t before_;
  } blocked;
  return std::thread(std::forward<Body>(body));
}

} // namespace dma_nixl
