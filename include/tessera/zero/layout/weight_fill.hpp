#pragma once
/// How a caller gives an engine its initial weights.

#include <cstdint>
#include <functional>

#include "tessera/memory/param_provider.hpp"

namespace tessera::zero {

/// Writes @p numel fp32 values of a parameter, from element @p first on, to @p out. @p parameter is
/// the index of the parameter in the model's unit.
using WeightFill = std::function<void(memory::UnitIndex unit, int parameter, std::int64_t first,
                                      std::int64_t numel, float* out)>;

}  // namespace tessera::zero
