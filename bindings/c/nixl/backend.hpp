// The backend that NIXL calls. It uses an engine of dma.h for copies within the process, system calls for other processes
// of this host, and another engine of dma.h for other hosts.
#pragma once
#include "interface.hpp"

#include <string>

namespace dma_nixl {

constexpr const char *PLUGIN = "DMA";

// The options, and their values in a backend for which the program gives none.
Options default_options();

// Creates a backend. Returns null after a failure, and writes the reason to stderr.
Engine *create_engine(const InitParameters &init);

} // namespace dma_nixl
