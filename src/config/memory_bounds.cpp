#include "tessera/config/memory_bounds.hpp"

#include <string>

#include "tessera/config/arguments_table.hpp"
#include "tessera/core/byte_size.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

std::int64_t bound(TrainingArguments const& arguments, std::string const& option) {
  if (!arguments.given(option)) return 0;
  try {
    return parse_size(arguments.values.value(argument_table(), option).as_string());
  } catch (UsageError const& e) {
    throw UsageError(concat("--", option, ": ", e.what()));
  }
}

}  // namespace

MemoryBounds memory_bounds(TrainingArguments const& arguments) {
  return {bound(arguments, "device_memory"), bound(arguments, "host_memory")};
}

}  // namespace tessera::config
