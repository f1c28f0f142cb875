// An agent of NIXL, as the plugin sees it: slot numbers, offsets and types, without the plugin's declarations.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

using Text = std::string;
using Options = std::unordered_map<Text, Text>;
using Notes = std::vector<std::pair<Text, Text>>;
using Bytes = std::vector<unsigned char>;

static int wrong;
inline void check(bool holds, const char *file, int line, const char *what) {
  if (!holds) {
    std::printf("%s:%d: %s\n", file, line, what);
    std::fflush(stdout);
    wrong = 1;
  }
}
#define CHECK(condition) check((condition), __FILE__, __LINE__, #condition)

// Statuses, types and operations, by NIXL's numbers.
enum { IN_PROGRESS = 1, DONE = 0, INVALID = -2, FAILED = -3, NOT_FOUND = -4, MISMATCH = -5, ACTIVE = -7, UNSUPPORTED = -9, GONE = -10 };
enum : unsigned { HOST = 0, GPU = 1, FILES = 4 };
enum : unsigned { READ = 0, WRITE = 1 };

// A transfer that was posted may have ended when the call returns.
inline bool started(int posted) { return posted == DONE || posted == IN_PROGRESS; }

// Slots of the engine's table, by NIXL's names. slots.py reads this list.
enum Slot {
  destructor = 0,
  deletingDestructor = 1,
  supportsRemote = 2,
  supportsLocal = 3,
  supportsNotif = 4,
  getSupportedMems = 5,
  registerMem = 6,
  deregisterMem = 7,
  connect_ = 8,
  disconnect = 9,
  unloadMD = 10,
  prepXfer = 11,
  postXfer = 12,
  checkXfer = 13,
  releaseReqH = 14,
  prepMemView = 15,
  prepMemView_ = 16,
  releaseMemView = 17,
  getPublicData = 18,
  getConnInfo = 19,
  loadRemoteConnInfo = 20,
  loadRemoteMD = 21,
  loadLocalMD = 22,
  getNotifs = 23,
  genNotif = 24,
  queryMem = 25,
  estimateXferCost = 26,
};

using Object = void *;

template <typename Result, typename... Arguments> Result call(Object object, Slot slot, Arguments... arguments) {
  auto table = *static_cast<void ***>(object);
  return reinterpret_cast<Result (*)(Object, Arguments...)>(table[slot])(object, arguments...);
}

inline unsigned char *member(Object object, size_t offset) { return static_cast<unsigned char *>(object) + offset; }

// A memory range: address, length, device, and a text or the plugin's memory object.
struct Described {
  uint64_t words[3];
  Text text;
};
struct Place {
  uint64_t words[3];
  Object memory;
};
// A list of ranges: a pointer to a virtual table that is never used, the type of memory, and a vector.
struct List {
  void *table = nullptr;
  uint64_t type = HOST;
  std::vector<Place> places = {};
};
struct Post {
  Text note;
  bool has_note;
  Text custom;
};

struct Plugin {
  int version;
  Object (*create)(const void *);
  void (*destroy)(Object);
  const char *(*name)();
  const char *(*release)();
  Options (*options)();
  std::vector<unsigned> (*types)();
};
static const Plugin *plugin;

class Agent {
public:
  explicit Agent(Text name, Options options = {}) : name(std::move(name)), options(std::move(options)) {
    alignas(8) unsigned char init[128] = {};
    new (init) Text(this->name);
    new (init + 32) Text("DMA");
    const Options *given = &this->options;
    std::memcpy(init + 64, &given, 8);
    init[72] = 1;
    const uint64_t delay = 100;
    std::memcpy(init + 80, &delay, 8);
    engine = plugin->create(init);
    reinterpret_cast<Text *>(init)->~Text();
    reinterpret_cast<Text *>(init + 32)->~Text();
  }
  ~Agent() {
    if (engine)
      plugin->destroy(engine);
  }
  bool failed() const { return *member(engine, 160) != 0; }

  int add(void *memory, size_t len, Object &out, unsigned type = HOST) {
    const Described place{{reinterpret_cast<uint64_t>(memory), len, 0}, ""};
    return call<int, const Described &, const unsigned &, Object &>(engine, registerMem, place, type, out);
  }
  Object add(Bytes &bytes) {
    Object out = nullptr;
    CHECK(add(bytes.data(), bytes.size(), out) == DONE);
    return out;
  }
  Object local(Object memory) {
    Object out = nullptr;
    CHECK((call<int, Object, Object &>(engine, loadLocalMD, memory, out) == DONE));
    return out;
  }
  int remove(Object memory) { return call<int>(engine, deregisterMem, memory); }
  void unload(Object memory) { CHECK(call<int>(engine, unloadMD, memory) == DONE); }
  int prepare(unsigned operation, const List &ours, const List &theirs, const Text &peer, Object &handle) {
    return call<int, const unsigned &, const List &, const List &, const Text &, Object &, const Post *>(
        engine, prepXfer, operation, ours, theirs, peer, handle, nullptr);
  }
  int post(unsigned operation, const List &ours, const List &theirs, const Text &peer, Object &handle, const Text &note = "") {
    const Post options{note, !note.empty(), ""};
    return call<int, const unsigned &, const List &, const List &, const Text &, Object &, const Post *>(
        engine, postXfer, operation, ours, theirs, peer, handle, &options);
  }
  // Posts a prepared transfer until a further post is refused, because the transfer is in flight. If the transfer ends
  // between two posts, it is posted again.
  bool post_until_in_flight(unsigned operation, Object &handle) {
    int posted = DONE;
    for (int i = 0; i < 100 && posted >= DONE; i++)
      posted = post(operation, {}, {}, "me", handle);
    return posted == ACTIVE;
  }
  int state(Object handle) { return call<int>(engine, checkXfer, handle); }
  int wait(Object handle, double seconds = 120) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    int now;
    while ((now = state(handle)) == IN_PROGRESS && std::chrono::steady_clock::now() < end)
      usleep(20);
    return now;
  }
  int free(Object handle) { return call<int>(engine, releaseReqH, handle); }
  Notes notes() {
    Notes out;
    CHECK((call<int, Notes &>(engine, getNotifs, out) == DONE));
    return out;
  }
  /* The other process may be stopped for long on a busy machine, so the limit is a guard against a hang. */
  Notes wait_notes(size_t count) {
    Notes all;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    for (; std::chrono::steady_clock::now() < end && all.size() < count; usleep(50))
      for (auto &note : notes())
        all.push_back(note);
    return all;
  }
  int notify(const Text &peer, const Text &note) {
    return call<int, const Text &, const Text &>(engine, genNotif, peer, note);
  }
  Text address() {
    Text text;
    CHECK((call<int, Text &>(engine, getConnInfo, text) == DONE));
    return text;
  }
  Text describe(Object memory) {
    Text text;
    CHECK((call<int, Object, Text &>(engine, getPublicData, memory, text) == DONE));
    return text;
  }
  int meet(const Text &peer, const Text &address) {
    return call<int, const Text &, const Text &>(engine, loadRemoteConnInfo, peer, address);
  }
  int import(const Text &peer, uint64_t address, size_t len, const Text &text, Object &out, unsigned type = HOST) {
    const Described place{{address, len, 0}, text};
    return call<int, const Described &, const unsigned &, const Text &, Object &>(engine, loadRemoteMD, place, type, peer, out);
  }

  const Text name;
  const Options options;
  Object engine;
};

// Fills memory in place.
inline void fill(Bytes &bytes, unsigned seed) {
  for (size_t at = 0; at < bytes.size(); at++)
    bytes[at] = static_cast<unsigned char>((at + seed) * 2654435761u >> 13);
}

inline Bytes pattern(size_t len, unsigned seed) {
  Bytes bytes(len);
  fill(bytes, seed);
  return bytes;
}

inline List places(const void *start, const std::vector<std::pair<size_t, size_t>> &ranges, Object memory) {
  List list;
  for (const auto &[at, len] : ranges)
    list.places.push_back({{reinterpret_cast<uint64_t>(start) + at, len, 0}, memory});
  return list;
}
