#pragma once
/// The numbers that the codes of a quantized base are.

#include "tessera/memory/param_provider.hpp"
#include "tessera/zero/layout/engine_config.hpp"

namespace tessera::zero {

/// Replaces the values of a complete matrix by those that its codes in @p base become, in fp32.
/// @param values [numel of matrix], in the order of its elements
void quantize_values(memory::ParameterSpec const& matrix, QuantizedBase const& base, float* values);

}  // namespace tessera::zero
