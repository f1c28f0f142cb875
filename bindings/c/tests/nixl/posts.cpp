// Posts a prepared transfer again and again, for counts of its instructions:
//
//   posts PLUGIN LIBNIXL WHERE PIECES COUNT    WHERE: "within" the process, or "between" two
//
// Pieces are 64 bytes long and not adjacent. The other process is this one, because only the system knows the difference.
#include "agent.hpp"

#include <cstdarg>
#include <dlfcn.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

static constexpr size_t LEN = 64, STEP = 2 * LEN;

// Valgrind 3.19 does not know pidfd_open. An event is as unreadable as the descriptor of a process that exists.
extern "C" long syscall(long number, ...) noexcept {
  static const auto libc = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
  if (number == SYS_pidfd_open)
    return eventfd(0, EFD_CLOEXEC);
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long &argument : arguments)
    argument = va_arg(list, long);
  va_end(list);
  return libc(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

int main(int argc, char **argv) {
  if (argc != 6 || !dlopen(argv[2], RTLD_NOW))
    return 2;
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  plugin = reinterpret_cast<const Plugin *(*)()>(dlsym(library, "nixl_plugin_init"))();
  const size_t pieces = std::strtoul(argv[4], nullptr, 10), count = std::strtoul(argv[5], nullptr, 10);
  {
    Agent agent("me", {{"engine", "cpu:threads=0"}});
    CHECK(!agent.failed());
    Bytes left = pattern(pieces * STEP, 1), right = pattern(pieces * STEP, 2);
    const Bytes before = right;
    const Object l = agent.add(left), r = agent.add(right);
    Text target = "me";
    Object theirs = nullptr;
    if (Text(argv[3]) == "between") {
      target = "peer";
      CHECK(agent.meet(target, agent.address()) == DONE);
      CHECK(agent.import(target, reinterpret_cast<uint64_t>(right.data()), right.size(), agent.describe(r), theirs) == DONE);
    } else {
      theirs = agent.local(r);
    }
    std::vector<std::pair<size_t, size_t>> ranges;
    for (size_t piece = 0; piece < pieces; piece++)
      ranges.push_back({piece * STEP, LEN});
    const List from = places(left.data(), ranges, l), to = places(right.data(), ranges, theirs);
    Object handle = nullptr;
    CHECK(agent.prepare(WRITE, from, to, target, handle) == DONE);
    if (wrong)
      return wrong;
    for (size_t i = 0; i < count; i++) {
      int status = agent.post(WRITE, from, to, target, handle);
      while (status == IN_PROGRESS)
        status = agent.state(handle);
      CHECK(status == DONE);
    }
    for (size_t at = 0; at < right.size(); at++)
      if (right[at] != (at % STEP < LEN ? left : before)[at]) {
        CHECK(!"wrong bytes");
        break;
      }
    CHECK(agent.free(handle) == DONE);
    agent.unload(theirs);
    CHECK(agent.remove(l) == DONE && agent.remove(r) == DONE);
  }
  return wrong;
}
