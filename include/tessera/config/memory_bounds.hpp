#pragma once
/// How much memory a rank may allocate.

#include <cstdint>

#include "tessera/config/arguments.hpp"

namespace tessera::config {

/// Bytes; 0: no bound.
struct MemoryBounds {
  std::int64_t device = 0;  ///< --device_memory
  std::int64_t host = 0;    ///< --host_memory
};

/// @throws UsageError when one of the options is not a size
MemoryBounds memory_bounds(TrainingArguments const& arguments);

}  // namespace tessera::config
