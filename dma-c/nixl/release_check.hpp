// The releases of NIXL whose interface was compared with interface.hpp.
#pragma once
#include <string>

namespace dma_nixl {

// Returns why the libnixl.so of this process is not one of them, or "".
std::string unchecked_release();

} // namespace dma_nixl
