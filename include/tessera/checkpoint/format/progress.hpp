#pragma once
/// A callback that long operations report their progress to.

#include <cstdint>
#include <functional>

namespace tessera::checkpoint {

/// Bytes done of those to do.
using ProgressCall = std::function<void(std::int64_t done, std::int64_t total)>;

}  // namespace tessera::checkpoint
