#pragma once
/// Matrix products behind one interface: oneDNN or CBLAS on the host, cuBLASLt on the device.

#include <string>

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  ///< add to c
  float alpha = 1.0f;
};

/// c[M, N] (+)= alpha * op(a) * op(b) + bias;  op(a) is [M, K], op(b) is [K, N], row-major; bias [N] or empty.
/// a, b (and bias) fp32, fp16 or bf16, the same; c that dtype or fp32. Sums are fp32.
/// The summation order depends on the shape and the number of threads only.
void gemm(Queue& q, Gemm const& how, TensorView c, ConstTensorView a, ConstTensorView b, ConstTensorView bias = {});

/// "oneDNN 2.6.3 (AVX-512, bf16 native)", for --version and reports.
std::string gemm_library();

}  // namespace tessera::kernels
