#include "tessera/config/resolved_config.hpp"

#include <string>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::config {
namespace {

std::int64_t bound(char const* option, std::string const& size) {
  if (size.empty()) return 0;
  try {
    return parse_size(size);
  } catch (UsageError const& e) {
    throw UsageError(concat("--", option, ": ", e.what()));
  }
}

}  // namespace

MemoryBounds memory_bounds(TrainingArguments const& arguments) {
  return {bound("device_memory", arguments.device_memory),
          bound("host_memory", arguments.host_memory)};
}

}  // namespace tessera::config
