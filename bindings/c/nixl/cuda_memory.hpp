// Device memory of other processes of this host, by the handles that CUDA's driver makes of allocations. The engine has
// loaded the driver; this file calls the functions that dma.h does not have.
#pragma once
#include "peer.hpp"

#include <memory>
#include <string>

namespace dma_nixl {

// Describes device memory of this process for other processes. A description that begins with "none " names the reason why
// no process can open the memory.
std::string describe_device_memory(uintptr_t address, size_t len);

// Memory of another process, mapped in this process until `owner` is destroyed.
struct OpenedMemory {
  Outcome outcome = {};
  uintptr_t address = 0;
  std::shared_ptr<void> owner = {};
};

// Opens memory by its description. `device` is the device of this process that will access it, as dma.h describes it.
OpenedMemory open_device_memory(const std::string &description, const std::string &device);

} // namespace dma_nixl
