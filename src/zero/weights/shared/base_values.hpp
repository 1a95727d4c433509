#pragma once
/// The numbers that frozen weights become where they are kept: rounded, or as codes.

#include "tessera/memory/param_provider.hpp"
#include "tessera/zero/layout/engine_config.hpp"

namespace tessera::zero {

/// Rounds values to @p dtype.
void round_values(Dtype dtype, float* values, std::int64_t numel);

/// Replaces the values of a complete matrix by those that its codes in @p base become, in fp32.
/// @param values [numel of matrix], in the order of its elements
void quantize_values(memory::ParameterSpec const& matrix, QuantizedBase const& base, float* values);

}  // namespace tessera::zero
