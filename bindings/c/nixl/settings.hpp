// The options of the plugin, and where their values come from. A value of the program wins over the environment, and the
// environment over the file.
#pragma once
#include "interface.hpp"

#include <map>
#include <string>

namespace dma_nixl {

struct Setting {
  std::string value;
  std::string source; // "default", the file and its line, the variable, or "program".
};

using Settings = std::map<std::string, Setting>;

// Replaces `settings` by the defaults, then those of the file that DMA_NIXL_OPTIONS names, then those of DMA_NIXL_ENGINE and
// so on. Returns why this fails, or an empty text.
std::string read_settings(Settings &settings);

// Sets an option. Returns why the plugin has no such option, or an empty text.
std::string set(Settings &settings, const std::string &name, Setting setting);

// The values of all options.
Options values_of(const Settings &settings);

// Says which options are in force, and from where.
std::string in_force(const Settings &settings);

} // namespace dma_nixl
