// The interface between NIXL 1.0.0 to 1.5.1 and its plugins, declared from facts: the order of functions, the layout and
// the types. NIXL calls through tables and reads members by offset. No name is linked, so the names here are our own.
// bindings/c/tests/nixl/host.cpp checks slots and offsets by number, and ci/nixl.sh compares the slots with NIXL's own plugins.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dma_nixl {

using Options = std::unordered_map<std::string, std::string>;

enum MemoryType : unsigned { DRAM, VRAM, BLOCK, OBJECT, FILE_ };

enum Direction : unsigned { READ, WRITE };

enum Status : int {
  IN_PROGRESS = 1,
  SUCCESS = 0,
  NOT_POSTED = -1,
  INVALID = -2,
  BACKEND = -3,
  NOT_FOUND = -4,
  MISMATCH = -5,
  NOT_ALLOWED = -6,
  ACTIVE = -7,
  UNKNOWN = -8,
  NOT_SUPPORTED = -9,
  DISCONNECTED = -10,
  CANCELLED = -11,
};

using MemoryTypes = std::vector<MemoryType>;
// The names of agents, each with its message.
using Notifications = std::vector<std::pair<std::string, std::string>>;

struct Range {
  uintptr_t address;
  size_t len;
  uint64_t device;
};

// A range, with the user's text or with a peer's description of its memory.
struct DescribedRange : Range {
  std::string text;
};

// A transfer. NIXL only stores the pointer.
class Handle {
public:
  virtual ~Handle() = default;
};

// Registered or imported memory. NIXL only stores the pointer.
class Memory {
protected:
  bool is_private = true;

public:
  virtual ~Memory() = default;
};

struct MemoryRange : Range {
  Memory *memory;
};

template <typename T> class List {
public:
  MemoryType type() const { return type_; }
  size_t size() const { return ranges_.size(); }
  const T &operator[](size_t at) const { return ranges_[at]; }

private:
  virtual void has_table() {} // NIXL's lists have a pointer to a virtual table, which plugins never use.
  MemoryType type_;
  std::vector<T> ranges_;
};

struct PostOptions {
  std::string notification;
  bool has_notification;
  std::string custom;
};

struct InitParameters {
  std::string agent;
  std::string type;
  Options *options;
  bool progress_thread;
  uint64_t progress_delay_us;
  int sync;
  bool telemetry;
};

class Engine {
public:
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  // The order of the functions is the interface: it has 27 slots, two of which belong to the destructor.
  virtual ~Engine() = default;
  virtual bool is_remote() const = 0;
  virtual bool is_local() const = 0;
  virtual bool has_notifications() const = 0;
  virtual MemoryTypes memory_types() const = 0;
  virtual Status register_memory(const DescribedRange &range, const MemoryType &type, Memory *&memory) = 0;
  virtual Status deregister_memory(Memory *memory) = 0;
  virtual Status connect(const std::string &agent) = 0;
  virtual Status disconnect(const std::string &agent) = 0;
  virtual Status unload(Memory *memory) = 0;
  virtual Status prepare(const Direction &direction, const List<MemoryRange> &local, const List<MemoryRange> &remote,
                         const std::string &agent, Handle *&handle, const PostOptions *options) const = 0;
  virtual Status post(const Direction &direction, const List<MemoryRange> &local, const List<MemoryRange> &remote,
                      const std::string &agent, Handle *&handle, const PostOptions *options) const = 0;
  virtual Status check(Handle *handle) const = 0;
  virtual Status release(Handle *handle) const = 0;
  virtual Status remote_view(const void *, void *&, const void *) const { return NOT_SUPPORTED; }
  virtual Status local_view(const void *, void *&, const void *) const { return NOT_SUPPORTED; }
  virtual void release_view(void *) const {}
  virtual Status describe(const Memory *memory, std::string &text) const = 0;
  virtual Status describe_connection(std::string &text) const = 0;
  virtual Status load_connection(const std::string &agent, const std::string &text) = 0;
  virtual Status load_remote(const DescribedRange &range, const MemoryType &type, const std::string &agent,
                             Memory *&memory) = 0;
  virtual Status load_local(Memory *registered, Memory *&memory) = 0;
  virtual Status take_notifications(Notifications &notifications) = 0;
  virtual Status notify(const std::string &agent, const std::string &message) const = 0;
  virtual Status query(const void *, std::vector<std::optional<Options>> &) const { return NOT_SUPPORTED; }
  virtual Status estimate(const Direction &, const List<MemoryRange> &, const List<MemoryRange> &, const std::string &,
                          Handle *const &, std::chrono::microseconds &, std::chrono::microseconds &, int &,
                          const void *) const {
    return NOT_SUPPORTED;
  }
  // Slots that a later release may append. If their functions return a status, they return NOT_SUPPORTED.
  virtual Status later_0() const { return NOT_SUPPORTED; }
  virtual Status later_1() const { return NOT_SUPPORTED; }
  virtual Status later_2() const { return NOT_SUPPORTED; }
  virtual Status later_3() const { return NOT_SUPPORTED; }

protected:
  explicit Engine(const InitParameters &init)
      : type_(init.type), options_(*init.options), agent(init.agent), telemetry_(init.telemetry) {}

  // Sets the options that NIXL shows to the program.
  void set_options(Options options) { options_ = std::move(options); }

private:
  // NIXL's inline functions read these members by offset.
  std::string type_;
  Options options_;
  std::vector<char> events_; // This vector stays empty, because the type of its elements differs between releases.
  std::mutex events_mutex_;

protected:
  bool failed = false; // NIXL refuses an engine in which this is true.
  const std::string agent;

private:
  const bool telemetry_;
  uint64_t spare_[16] = {}; // If a later release appends a member, NIXL reads it as 0.
};

struct PluginTable {
  int version; // 1 in all releases, so it does not identify the release.
  Engine *(*create)(const InitParameters *init);
  void (*destroy)(Engine *engine);
  const char *(*name)();
  const char *(*release)();
  Options (*options)();
  MemoryTypes (*memory_types)();
};

// These sizes are the layout on 64-bit Linux with the current ABI of libstdc++.
static_assert(sizeof(void *) == 8 && sizeof(std::string) == 32 && sizeof(Options) == 56 && sizeof(std::mutex) == 40);
static_assert(sizeof(Range) == 24 && sizeof(DescribedRange) == 56 && sizeof(MemoryRange) == 32);
static_assert(sizeof(List<MemoryRange>) == 40 && sizeof(MemoryTypes) == 24 && sizeof(PluginTable) == 56);
static_assert(sizeof(PostOptions) == 72 && offsetof(PostOptions, custom) == 40);
static_assert(sizeof(InitParameters) == 96 && offsetof(InitParameters, telemetry) == 92);

} // namespace dma_nixl
