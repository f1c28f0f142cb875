#include "cuda_memory.hpp"

#include "remote_notifier.hpp"

#include <cctype>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <sstream>

namespace dma_nixl {
namespace {

// The types and numbers of CUDA's driver interface.
struct AllocationHandle {
  unsigned char bytes[64];
};
struct Uuid {
  unsigned char bytes[16];
};
constexpr int DEVICE_ORDINAL = 9;
constexpr unsigned LAZY_ENABLE_PEER_ACCESS = 1;

// Functions of the driver that the engine has loaded.
class Driver {
public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    find(attribute, "cuPointerGetAttribute");
    find(range, "cuMemGetAddressRange_v2");
    find(count, "cuDeviceGetCount");
    find(device, "cuDeviceGet");
    find(by_pci, "cuDeviceGetByPCIBusId");
    find(uuid, "cuDeviceGetUuid");
    find(can_access, "cuDeviceCanAccessPeer");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(release, "cuDevicePrimaryCtxRelease_v2");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
    find(get_handle, "cuIpcGetMemHandle");
    find(open_handle, "cuIpcOpenMemHandle_v2");
    find(close_handle, "cuIpcCloseMemHandle");
    find(error_name, "cuGetErrorName");
  }
  // The engine keeps the library loaded.
  ~Driver() {
    if (library_)
      dlclose(library_);
  }
  Driver(const Driver &) = delete;
  Driver &operator=(const Driver &) = delete;

  bool is_loaded() const { return library_ && complete_; }

  std::string failed(const char *name, int code) const {
    const char *text = nullptr;
    return std::string(name) + ": " + (error_name(code, &text) == 0 && text ? text : "error") + " (" + std::to_string(code) + ")";
  }

  // Calls `body` in the primary context of a device. Returns the result of the first call that failed, or 0.
  template <typename Body> int within(int number, const Body &body) const {
    void *context = nullptr;
    int code = retain(&context, number);
    if (code != 0)
      return code;
    code = push(context);
    if (code == 0) {
      code = body();
      (void)pop(&context);
    }
    (void)release(number);
    return code;
  }

  int (*attribute)(void *value, int attribute, uint64_t address) = nullptr;
  int (*range)(uint64_t *start, size_t *len, uint64_t address) = nullptr;
  int (*count)(int *count) = nullptr;
  int (*device)(int *device, int ordinal) = nullptr;
  int (*by_pci)(int *device, const char *address) = nullptr;
  int (*uuid)(Uuid *uuid, int device) = nullptr;
  int (*can_access)(int *can, int device, int peer) = nullptr;
  int (*retain)(void **context, int device) = nullptr;
  int (*release)(int device) = nullptr;
  int (*push)(void *context) = nullptr;
  int (*pop)(void **context) = nullptr;
  int (*get_handle)(AllocationHandle *handle, uint64_t address) = nullptr;
  int (*open_handle)(uint64_t *address, AllocationHandle handle, unsigned flags) = nullptr;
  int (*close_handle)(uint64_t address) = nullptr;
  int (*error_name)(int code, const char **name) = nullptr;

private:
  template <typename Function> void find(Function &function, const char *name) {
    function = library_ ? reinterpret_cast<Function>(dlsym(library_, name)) : nullptr;
    complete_ = complete_ && function;
  }

  void *library_;
  bool complete_ = true;
};

// Returns the PCI address in a device's description, such as "GPU at 0000:17:00.0", or an empty text.
std::string pci_address(const std::string &device) {
  for (size_t at = device.find(" at "); at != device.npos; at = device.find(" at ", at + 1)) {
    const std::string found = device.substr(at + 4, 12);
    bool holds = found.size() == 12;
    for (size_t digit = 0; holds && digit < found.size(); digit++) {
      const char sign = digit == 4 || digit == 7 ? ':' : digit == 10 ? '.' : '\0';
      holds = sign ? found[digit] == sign : std::isxdigit(static_cast<unsigned char>(found[digit])) != 0;
    }
    if (holds)
      return found;
  }
  return "";
}

// An allocation that this process has opened. The driver opens an allocation only once in each context.
struct Opened {
  uint64_t address;
  size_t users;
};
struct OpenedAllocations {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, Opened> by_handle;
};
OpenedAllocations &opened_allocations() {
  static auto *const allocations = new OpenedAllocations; // Threads may use it while the program ends.
  return *allocations;
}

void close_allocation(const std::pair<int, std::string> &key) {
  OpenedAllocations &all = opened_allocations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_handle.find(key);
  if (found == all.by_handle.end() || --found->second.users > 0)
    return;
  const Driver driver;
  const uint64_t address = found->second.address;
  if (driver.is_loaded())
    (void)driver.within(key.first, [&] { return driver.close_handle(address); });
  all.by_handle.erase(found);
}

} // namespace

std::string describe_device_memory(uintptr_t address, size_t len) {
  const Driver driver;
  if (!driver.is_loaded())
    return "none its engine is not CUDA's";
  int ordinal = -1, number = -1;
  uint64_t start = 0;
  size_t size = 0;
  Uuid uuid{};
  AllocationHandle handle{};
  int code = driver.attribute(&ordinal, DEVICE_ORDINAL, address);
  if (code == 0)
    code = driver.device(&number, ordinal);
  if (code == 0)
    code = driver.uuid(&uuid, number);
  if (code != 0)
    return "none " + driver.failed("its GPU", code);
  code = driver.within(number, [&] {
    const int found = driver.range(&start, &size, address);
    return found == 0 ? driver.get_handle(&handle, address) : found;
  });
  if (code != 0)
    return "none " + driver.failed("cuIpcGetMemHandle", code) +
           "; only memory of cuMemAlloc and cudaMalloc has a handle, not that of pools and cuMemCreate";
  if (address < start || address - start > size || len > size - (address - start))
    return "none it is in several allocations, which are registered one by one";
  return "cuda " + hex(uuid.bytes, sizeof uuid.bytes) + " " + hex(handle.bytes, sizeof handle.bytes) + " " +
         std::to_string(address - start);
}

OpenedMemory open_device_memory(const std::string &description, const std::string &device) {
  std::istringstream fields(description);
  std::string kind, uuid_text, handle_text, uuid, bytes;
  uint64_t offset = 0;
  fields >> kind;
  if (kind == "none")
    return {{NOT_SUPPORTED, "its device memory cannot be opened by other processes: " + description.substr(5)}};
  fields >> uuid_text >> handle_text >> offset;
  AllocationHandle handle{};
  if (!fields || kind != "cuda" || !from_hex(uuid_text, uuid) || uuid.size() != sizeof(Uuid) || !from_hex(handle_text, bytes) ||
      bytes.size() != sizeof handle)
    return {{MISMATCH, "its description is of another version of this plugin"}};
  std::memcpy(handle.bytes, bytes.data(), sizeof handle);
  const Driver driver;
  if (!driver.is_loaded())
    return {{NOT_SUPPORTED, "its memory is on a GPU; give this agent the option engine=cuda"}};
  int count = 0, theirs = -1, own = 0;
  (void)driver.count(&count);
  for (int ordinal = 0; ordinal < count && theirs < 0; ordinal++) {
    Uuid found{};
    int number = -1;
    if (driver.device(&number, ordinal) == 0 && driver.uuid(&found, number) == 0 &&
        !std::memcmp(found.bytes, uuid.data(), sizeof found))
      theirs = number;
  }
  if (theirs < 0)
    return {{NOT_SUPPORTED, "its memory is on the GPU " + uuid_text +
                                ", which this process does not see; add the GPU to CUDA_VISIBLE_DEVICES"}};
  const std::string address = pci_address(device);
  if (!address.empty() && driver.by_pci(&own, address.c_str()) != 0)
    return {{BACKEND, "the driver does not know the engine's own GPU at " + address}};
  int can = 0;
  if (own != theirs && (driver.can_access(&can, own, theirs) != 0 || can == 0))
    return {{NOT_SUPPORTED, "its memory is on the GPU " + uuid_text + ", which the engine's GPU cannot access"}};

  OpenedAllocations &all = opened_allocations();
  const std::pair<int, std::string> key{own, bytes};
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto found = all.by_handle.find(key);
  if (found == all.by_handle.end()) {
    uint64_t start = 0;
    const int code = driver.within(own, [&] { return driver.open_handle(&start, handle, LAZY_ENABLE_PEER_ACCESS); });
    if (code != 0)
      return {{BACKEND, "its device memory was freed, or cannot be opened: " + driver.failed("cuIpcOpenMemHandle", code)}};
    found = all.by_handle.emplace(key, Opened{start, 0}).first;
  }
  found->second.users++;
  OpenedMemory memory;
  memory.address = found->second.address + offset;
  memory.owner = std::shared_ptr<void>(nullptr, [key](void *) { close_allocation(key); });
  return memory;
}

} // namespace dma_nixl
