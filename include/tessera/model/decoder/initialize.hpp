#pragma once
/// Initial weights as a function of (seed, parameter name, element): the same for every number of
/// ranks and every partitioning.

#include <cstdint>

#include "tessera/memory/param_provider.hpp"

namespace tessera::model {

/// Fills @p out (fp32, `numel` elements of the parameter from element `first`) with the parameter's
/// initial values. Each value depends on (seed, parameter name, element) only, so every
/// partitioning starts from the same weights.
void initialize_parameter(memory::ParameterSpec const& spec, std::uint64_t seed, std::int64_t first,
                          std::int64_t numel, float* out);

}  // namespace tessera::model
