// The releases of NIXL whose interface was compared with interface.hpp.
#pragma once
#include <string>

namespace dma_nixl {

// Returns "" if the libnixl.so of this process is one of them, or else the reason why not.
std::string unchecked_release();

} // namespace dma_nixl
