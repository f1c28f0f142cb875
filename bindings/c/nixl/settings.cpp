#include "settings.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <unistd.h>

namespace dma_nixl {
namespace {

const Options DEFAULTS = {{"engine", "cpu"}, {"remote", ""}, {"listen", ""}, {"peers", ""}, {"ptrace", ""}, {"stall_ms", "30000"}, {"answer_ms", "30000"}, {"fallback", ""}};

constexpr char PREFIX[] = "DMA_NIXL_";
constexpr char FILE_VARIABLE[] = "DMA_NIXL_OPTIONS";

std::string trimmed(const std::string &text) {
  const char *blanks = " \t\r";
  const size_t begin = text.find_first_not_of(blanks);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

// Reads lines NAME=VALUE. Lines that are empty or begin with # are left out.
std::string read_file(const std::string &path, Settings &settings) {
  errno = 0;
  std::ifstream file(path);
  if (!file)
    return std::string(FILE_VARIABLE) + " names " + path + ", which cannot be read: " + std::generic_category().message(errno);
  std::string line;
  for (int number = 1; std::getline(file, line); number++) {
    line = trimmed(line);
    if (line.empty() || line[0] == '#')
      continue;
    const std::string place = path + ":" + std::to_string(number);
    const size_t sign = line.find('=');
    if (sign == line.npos)
      return place + ": `" + line + "` is not NAME=VALUE";
    const std::string reason = set(settings, trimmed(line.substr(0, sign)), {trimmed(line.substr(sign + 1)), place});
    if (!reason.empty())
      return place + ": " + reason;
  }
  return file.bad() ? path + " cannot be read to its end" : "";
}

} // namespace

std::string set(Settings &settings, const std::string &name, Setting setting) {
  const auto found = settings.find(name);
  if (found == settings.end())
    return "there is no option " + name + "; the options are engine=NAME, remote=NAME, listen=IP:PORT, peers=remote, " +
           "ptrace=any, stall_ms=MILLISECONDS, answer_ms=MILLISECONDS, fallback=cpu";
  found->second = std::move(setting);
  return "";
}

std::string read_settings(Settings &settings) {
  settings.clear();
  for (const auto &[name, value] : DEFAULTS)
    settings[name] = {value, "default"};
  const char *path = std::getenv(FILE_VARIABLE);
  if (path && *path) {
    const std::string reason = read_file(path, settings);
    if (!reason.empty())
      return reason;
  }
  for (char **entry = environ; entry && *entry; entry++) {
    const char *value = std::strchr(*entry, '=');
    if (!value || std::strncmp(*entry, PREFIX, sizeof PREFIX - 1) != 0)
      continue;
    const std::string variable(*entry, static_cast<size_t>(value - *entry));
    // An empty variable counts as one that is not set.
    if (variable == FILE_VARIABLE || !*++value)
      continue;
    std::string name = variable.substr(sizeof PREFIX - 1);
    for (char &letter : name)
      letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    const std::string reason = set(settings, name, {value, variable});
    if (!reason.empty())
      return variable + ": " + reason;
  }
  return "";
}

Options values_of(const Settings &settings) {
  Options values;
  for (const auto &[name, setting] : settings)
    values[name] = setting.value;
  return values;
}

std::string in_force(const Settings &settings) {
  std::string text;
  for (const auto &[name, setting] : settings)
    if (!setting.value.empty())
      text += (text.empty() ? "" : ", ") + name + "=" + setting.value + " (" + setting.source + ")";
  return text;
}

} // namespace dma_nixl
