#pragma once
/// One matrix product as plain numbers, as the library adapters take it.

#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera::kernels::detail {

enum class GemmActivation {
  none,
  gelu,        ///< gelu_input = x, c = gelu_new(x)
  gelu_slope,  ///< c = x gelu_new'(gelu_input)
};

/// x = alpha op(a) op(b) + bias;  c[m, n] (+)= x, or what the activation says. All row-major and without gaps.
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  float alpha = 1.0f;
  Dtype in = Dtype::fp32, out = Dtype::fp32;  ///< of a, b and bias; of c
  void* c = nullptr;
  void const* a = nullptr;
  void const* b = nullptr;
  void const* bias = nullptr;  ///< [n] or null
  GemmActivation activation = GemmActivation::none;
  void* gelu_input = nullptr;  ///< [m, n] in c's dtype; gelu writes it, gelu_slope reads it
};

/// c = alpha op(a) op(b) + beta c in fp32, row-major with leading dimensions.
struct Sgemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1.0f, beta = 0.0f;
  float const* a = nullptr;
  std::int64_t lda = 0;
  float const* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
};

}  // namespace tessera::kernels::detail
