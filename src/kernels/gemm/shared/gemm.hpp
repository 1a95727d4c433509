#pragma once
/// Matrix products behind one interface: oneDNN or CBLAS on the host, cuBLASLt on the device.

#include "tessera/core/float8.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// What the codes (uint8) of an operand mean.
struct Float8Factor {
  Float8 format = Float8::e4m3;
  /// [1] fp32 in the queue's memory: the product is multiplied by it when the queue executes it.
  ConstTensorView scale{};
};

struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  ///< add to c
  float alpha = 1.0f;
  /// Elements from one row of a, b, c to the next, where rows have gaps after them; 0: none. The
  /// gaps of c stay as they are.
  std::int64_t row_a = 0, row_b = 0, row_c = 0;
  /// Scaling factors of operands in fp8; both are set, or none.
  Float8Factor fp8_a{}, fp8_b{};
};

/// What becomes of x = alpha op(a) op(b) + bias. At most one of the two activations; neither goes
/// with accumulation or gaps in c.
struct GemmEpilogue {
  /// [N], of a's dtype, or of c's, which cuBLASLt adds in the product; empty: none
  ConstTensorView bias{};
  TensorView gelu_input{};          ///< [M, N], c's dtype: receives x, and c receives gelu_new(x)
  ConstTensorView gelu_slope_at{};  ///< [M, N], c's dtype: c receives x * gelu_new'(this)
};

/// c[M, N] (+)= alpha * op(a) * op(b) + bias;  op(a) is [M, K], op(b) is [K, N], row-major.
/// a and b fp32, fp16 or bf16, the same; c that dtype or fp32. Sums are fp32.
/// fp8: a and b of either format, but not both of e5m2; a not transposed, b transposed, as tensor
/// cores up to Hopper need it; bias bf16, c bf16 or fp32. On the host operands are converted to
/// fp32. The summation order depends on the shape and the number of threads only. On the host an
/// activation is the kernel of elementwise.hpp after the product, bit for bit. On a device it may
/// be part of the product (DeviceSettings::gelu); it then takes x before x is rounded to c's dtype.
/// Either way equal calls give equal bits.
void gemm(Queue& q, Gemm const& how, TensorView c, ConstTensorView a, ConstTensorView b,
          GemmEpilogue const& then = {});

/// While one lives, the workspace is known that the host's products of its thread would share, on
/// this processor. For plans, whose queues drop the products (memory/planning.hpp).
class ProductPlanning {
 public:
  /// @param threads of the rank that would compute them
  explicit ProductPlanning(int threads);
  ~ProductPlanning();
  ProductPlanning(ProductPlanning const&) = delete;
  ProductPlanning& operator=(ProductPlanning const&) = delete;
  std::size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  friend void gemm(Queue& q, Gemm const& how, TensorView c, ConstTensorView a, ConstTensorView b,
                   GemmEpilogue const& then);
  ProductPlanning* outer_;
  int threads_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace tessera::kernels
