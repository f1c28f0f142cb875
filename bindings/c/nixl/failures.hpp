// Failures of dma.h: their log and their statuses for NIXL.
#pragma once
#include "interface.hpp"

#include <dma.h>
#include <string>

namespace dma_nixl {

void log(const std::string &text);

// Describes the thread's last failure of dma.h, with its remedy.
std::string last_error();

// Returns the status for NIXL of a failure of dma.h.
Status status_of(dma_status status);

// Logs the thread's last failure of dma.h, and returns its status for NIXL.
Status failure_of(dma_status status);

} // namespace dma_nixl
