#pragma once
/// Sizes that are padded.

#include <cstdint>

namespace tessera::zero::detail {

/// The smallest multiple of @p multiple that is not below @p value. @pre value >= 0, multiple > 0
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace tessera::zero::detail
