#include "tessera/core/process.hpp"

#include <fstream>
#include <sstream>

namespace tessera {

/// "pid (comm) state ppid ...": comm may contain any character, so fields count from the last
/// parenthesis.
std::optional<ProcessStat> parse_process_stat(std::string const& text) {
  auto const close = text.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(close + 1));
  ProcessStat out;
  fields >> out.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  return fields >> out.started ? std::optional(out) : std::nullopt;
}

std::optional<ProcessStat> process_stat(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  return std::getline(file, line) ? parse_process_stat(line) : std::nullopt;
}

}  // namespace tessera
