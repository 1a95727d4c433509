#pragma once
/// One matrix product as plain numbers, as the library adapters take it.

#include <cstdint>

#include "tessera/core/dtype.hpp"
#include "tessera/core/float8.hpp"

namespace tessera::kernels::detail {

enum class GemmActivation {
  none,
  gelu,        ///< gelu_input = x, c = gelu_new(x)
  gelu_slope,  ///< c = x gelu_new'(gelu_input)
};

/// x = alpha op(a) op(b) + bias;  c[m, n] (+)= x, or what the activation says. All row-major.
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  float alpha = 1.0f;
  /// `in` is the dtype of a and b (of an fp8 product bf16, the dtype of its bias), `out` the dtype
  /// of c.
  Dtype in = Dtype::fp32, out = Dtype::fp32;
  void* c = nullptr;
  void const* a = nullptr;
  void const* b = nullptr;
  void const* bias = nullptr;  ///< [n] or null
  GemmActivation activation = GemmActivation::none;
  void* gelu_input = nullptr;  ///< [m, n] in c's dtype; gelu writes it, gelu_slope reads it
  std::int64_t row_a = 0, row_b = 0,
               row_c = 0;  ///< elements from row to row; 0: as many as a row has
  /// Formats and factors of an fp8 product. The factors are in the queue's memory.
  Float8 format_a = Float8::e4m3, format_b = Float8::e4m3;
  float const *scale_a = nullptr, *scale_b = nullptr;
  bool has_fp32_bias = false;  ///< the bias is fp32 where `in` is not; c is fp32 then

  Dtype bias_dtype() const { return has_fp32_bias ? Dtype::fp32 : in; }
  bool is_fp8() const { return scale_a != nullptr; }
  /// What oneDNN's bf16 primitive computes: it applies alpha to the sum and the bias.
  bool is_native_bf16() const {
    return in == Dtype::bf16 && !is_fp8() && (out == Dtype::bf16 || out == Dtype::fp32) && k > 0 &&
           (bias == nullptr || alpha == 1.0f);
  }

  std::int64_t lda() const { return row_a ? row_a : transpose_a ? m : k; }
  std::int64_t ldb() const { return row_b ? row_b : transpose_b ? k : n; }
  std::int64_t ldc() const { return row_c ? row_c : n; }
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
