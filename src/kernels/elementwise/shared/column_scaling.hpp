#pragma once
/// Kernels of matrices whose columns have factors, and the norms of adapted matrices: what
/// weight-decomposed adapters need. Liu et al., "DoRA: Weight-Decomposed Low-Rank Adaptation",
/// ICML'24. T is fp32, fp16 or bf16; factors and biases are fp32; arithmetic is fp32.

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// out [R, C] T = in [R, C] T * (factors [C] + offset).
void scale_columns(Queue& q, TensorView out, ConstTensorView in, ConstTensorView factors,
                   float offset = 0.0f);
/// out [R, C] T += (factors [C] - 1) * (in [R, C] T - bias [C]). @param bias may be empty
void add_scaled_columns(Queue& q, TensorView out, ConstTensorView in, ConstTensorView factors,
                        ConstTensorView bias = {});
/// out [R, C] fp32 *= in [R, C] T * factors [C].
void multiply_columns(Queue& q, TensorView out, ConstTensorView in, ConstTensorView factors);

/// A matrix W of T with a low-rank part: V = W + s B A, without V in memory. The squared norm of a
/// row of V is that of the row of W plus the row's sum of products * B.
struct AdaptedMatrix {
  ConstTensorView weight;    ///< [out, in]; [in, out] if transposed
  ConstTensorView b;         ///< [out, rank] fp32
  ConstTensorView products;  ///< [out, rank] fp32: 2 s W A^T + s^2 B A A^T
  bool transposed = false;
};
/// inverses [out] fp32 = 1 / norm of the row of V, factors [out] fp32 = magnitudes [out] fp32 *
/// inverses. 2 or 4 bytes read per element of W. Deterministic.
void adapted_row_factors(Queue& q, TensorView factors, TensorView inverses,
                         ConstTensorView magnitudes, AdaptedMatrix const& matrix);

}  // namespace tessera::kernels
