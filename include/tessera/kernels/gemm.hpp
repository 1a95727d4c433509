#pragma once
/// Matrix products behind one interface: oneDNN or CBLAS on the host, cuBLASLt on the device.

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  ///< add to c
  float alpha = 1.0f;
  /// Elements from one row of a, b, c to the next, where rows have gaps after them; 0: none. The
  /// gaps of c stay as they are.
  std::int64_t row_a = 0, row_b = 0, row_c = 0;
};

/// What becomes of x = alpha op(a) op(b) + bias. At most one of the two activations; neither goes
/// with accumulation or gaps in c.
struct GemmEpilogue {
  ConstTensorView bias{};           ///< [N], a's dtype; empty: none
  TensorView gelu_input{};          ///< [M, N], c's dtype: receives x, and c receives gelu_new(x)
  ConstTensorView gelu_slope_at{};  ///< [M, N], c's dtype: c receives x * gelu_new'(this)
};

/// c[M, N] (+)= alpha * op(a) * op(b) + bias;  op(a) is [M, K], op(b) is [K, N], row-major.
/// a, b (and bias) fp32, fp16 or bf16, the same; c that dtype or fp32. Sums are fp32.
/// The summation order depends on the shape and the number of threads only.
/// On the host an activation is the kernel of elementwise.hpp after the product, bit for bit. On a
/// device it may be part of the product (DeviceSettings::gelu); it then takes x before x is rounded
/// to c's dtype. Either way equal calls give equal bits.
void gemm(Queue& q, Gemm const& how, TensorView c, ConstTensorView a, ConstTensorView b,
          GemmEpilogue const& then = {});

}  // namespace tessera::kernels
