// A GPU, by the calls of CUDA's driver.
#pragma once
#include "agent.hpp"

#include <dlfcn.h>

// A GPU, whose primary context is current in this thread.
class Gpu {
public:
  explicit Gpu(const char *libcuda, int ordinal = 0) : library_(dlopen(libcuda, RTLD_NOW)) {
    CHECK(library_ != nullptr);
    int number = 0;
    void *context = nullptr;
    CHECK(call<unsigned>("cuInit", 0) == 0);
    CHECK((call<int *, int>("cuDeviceGet", &number, ordinal) == 0));
    CHECK((call<void **, int>("cuDevicePrimaryCtxRetain", &context, number) == 0));
    CHECK(call<void *>("cuCtxSetCurrent", context) == 0);
  }

  uint64_t allocate(size_t len) const {
    uint64_t address = 0;
    CHECK((call<uint64_t *, size_t>("cuMemAlloc_v2", &address, len) == 0));
    return address;
  }
  // Returns memory that has no handle for other processes.
  uint64_t allocate_from_pool(size_t len) const {
    uint64_t address = 0;
    CHECK((call<uint64_t *, size_t, void *>("cuMemAllocAsync", &address, len, nullptr) == 0));
    CHECK(call<void *>("cuStreamSynchronize", nullptr) == 0);
    return address;
  }
  void release(uint64_t address) const { CHECK(call<uint64_t>("cuMemFree_v2", address) == 0); }
  void write(uint64_t to, const Bytes &bytes) const {
    CHECK((call<uint64_t, const void *, size_t>("cuMemcpyHtoD_v2", to, bytes.data(), bytes.size()) == 0));
  }
  Bytes read(uint64_t from, size_t len) const {
    Bytes bytes(len);
    CHECK((call<void *, uint64_t, size_t>("cuMemcpyDtoH_v2", bytes.data(), from, len) == 0));
    return bytes;
  }

private:
  template <typename... Arguments> int call(const char *name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    return function ? function(arguments...) : -1;
  }

  void *library_;
};
