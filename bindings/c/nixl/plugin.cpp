// The two functions that NIXL looks up by name.
#include "backend.hpp"
#include "release_check.hpp"

#include <cstdio>
#include <cstring>
#include <dma.h>
#include <exception>

namespace dma_nixl {
namespace {

// Checks that the values are plausible. Implausible values show that NIXL's structure has another layout.
bool is_sane(const InitParameters *init) {
  unsigned char flag;
  std::memcpy(&flag, &init->progress_thread, 1);
  return init->type == PLUGIN && init->options && init->sync >= 0 && init->sync <= 2 && flag <= 1;
}

Engine *create(const InitParameters *init) {
  try {
    if (is_sane(init))
      return create_engine(*init);
    std::fprintf(stderr, "dma-nixl: the parameters of NIXL have another layout\n");
  } catch (const std::exception &e) {
    std::fprintf(stderr, "dma-nixl: %s\n", e.what());
  }
  return nullptr;
}

PluginTable table = {
    1,
    create,
    [](Engine *engine) { delete engine; },
    [] { return PLUGIN; },
    [] { return dma_version(); },
    default_options,
    [] { return MemoryTypes{DRAM, VRAM}; },
};

} // namespace
} // namespace dma_nixl

extern "C" __attribute__((visibility("default"))) dma_nixl::PluginTable *nixl_plugin_init() {
  const std::string reason = dma_nixl::unchecked_release();
  if (reason.empty())
    return &dma_nixl::table;
  std::fprintf(stderr, "dma-nixl: %s\n", reason.c_str());
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) void nixl_plugin_fini() {}
