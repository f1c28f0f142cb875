#include "failures.hpp"

#include <cstdio>

namespace dma_nixl {

void log(const std::string &text) { std::fprintf(stderr, "dma-nixl: %s\n", text.c_str()); }

std::string last_error() {
  dma_error error{};
  error.size = sizeof error;
  return dma_last_error(&error) == DMA_OK ? error.text : "unknown failure";
}

Status failure_of(dma_status status) {
  log(last_error());
  return status_of(status);
}

Status status_of(dma_status status) {
  switch (status) {
  case DMA_INVALID_ARGUMENT:
  case DMA_OUT_OF_RANGE:
  case DMA_LENGTH_MISMATCH:
  case DMA_OVERLAP:
    return INVALID;
  case DMA_UNSUPPORTED:
    return NOT_SUPPORTED;
  case DMA_ACCESS_DENIED:
  case DMA_PERMISSION_DENIED:
  case DMA_IN_USE:
    return NOT_ALLOWED;
  case DMA_ABORTED:
    return CANCELLED;
  default:
    return BACKEND;
  }
}

} // namespace dma_nixl
