#pragma once
/// Runs of elements between fp32 and the other floating-point types: plain loops that vectorize.

#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint::detail {

/// out[i] = round to nearest even of in[i]. @p dtype fp32, bf16 or fp16
void from_fp32(float const* in, std::int64_t numel, Dtype dtype, void* out);
/// out[i] = in[i]. @p dtype fp64 (rounded), fp32, bf16 or fp16
void to_fp32(void const* in, std::int64_t numel, Dtype dtype, float* out);

/// @throws ConfigError unless models may be written in this type
void check_model_dtype(Dtype dtype);

}  // namespace tessera::checkpoint::detail
