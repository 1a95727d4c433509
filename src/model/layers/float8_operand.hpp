#pragma once
/// Matrix products of transformer blocks in fp8: operands are cast in the activations' arena.

#include "layers/pass.hpp"
#include "tessera/kernels/gemm/gemm.hpp"

namespace tessera::model::detail {

/// A matrix in fp8, and the reciprocal of its scale as factor.
struct Float8Matrix {
  ConstTensorView values;
  kernels::Float8Factor factor;
};
/// A matrix and its transpose; one may be empty.
struct Float8Operand {
  Float8Matrix rows, transposed;
};
/// The forms that products read.
struct Float8Forms {
  bool rows = false, transposed = false;
};

/// Casts @p in [R, C] with the scale of its values here and now. The copies stay in the arena.
/// @pre C is a multiple of 16
Float8Operand to_float8(PassContext const& pass, Float8 format, ConstTensorView in,
                        Float8Forms forms);

/// c (+)= a b^T + bias.
void multiply(PassContext const& pass, kernels::GradientTarget const& c, Float8Matrix const& a,
              Float8Matrix const& b, kernels::GemmEpilogue const& then = {});

}  // namespace tessera::model::detail
