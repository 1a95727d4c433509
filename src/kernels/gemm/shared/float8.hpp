#pragma once
/// Operands of matrix products in fp8: the scale of a tensor, and its scaled copy.
///
/// Scaling is per tensor and current: the scale is that of the values that are cast, not of earlier
/// steps. Micikevicius et al., arXiv 2209.05433, section 3, leave scaling to software; Transformer
/// Engine calls this recipe Float8CurrentScaling with use_power_2_scales. The scale is the largest
/// power of two with which the largest value stays finite. So scaling never rounds and nothing
/// saturates; less than one of the 18 (e4m3) or 32 (e5m2) binades of a format stays unused.

#include "tessera/core/float8.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// The scale s of an operand and its reciprocal, which a product multiplies by.
struct Float8Scale {
  TensorView values;  ///< [8] fp32: s first, 1/s in element `reciprocal_at`

  /// cuBLASLt refuses scales that are not aligned to 16 bytes.
  static constexpr std::int64_t reciprocal_at = 4, numel = 8;
  ConstTensorView reciprocal() const { return values.rows(reciprocal_at, 1); }
};

/// Elements fp32 that float8_scale() needs as workspace.
std::int64_t float8_scale_workspace(std::int64_t numel);

/// s = the largest power of two for which max|in| s is finite in @p format, 1 when all values are
/// 0, and NaN when one is infinite or NaN: then all of the copy is NaN, so that the overflow check
/// of gradients sees it. |s| and |1/s| are normal fp32 numbers. Bytes moved: in once.
void float8_scale(Queue& q, Float8Scale const& scale, Float8 format, ConstTensorView in,
                  TensorView workspace);

/// Copies of a matrix [rows, columns], in uint8; either may be empty.
struct Float8Copies {
  TensorView rows;        ///< [rows, columns]
  TensorView transposed;  ///< [columns, float8_padded(rows)]: zeros after the last row
};

/// fp8(in s), rounded to nearest even and saturating. in [rows, columns] fp32, fp16 or bf16.
/// Products on tensor cores need both operands with their depth along the rows, hence the
/// transposed copy. @pre columns is a multiple of 16
void float8_cast(Queue& q, Float8 format, Float8Copies const& out, ConstTensorView in,
                 Float8Scale const& scale);

/// What widths must be a multiple of, and the depth of a product of transposed copies is padded to:
/// tensor cores need rows of a multiple of 16 bytes (cuBLAS manual, cublasLtMatmul(), FP8 kernels).
inline constexpr std::int64_t float8_multiple = 16;
constexpr std::int64_t float8_padded(std::int64_t rows) { return round_up(rows, float8_multiple); }

}  // namespace tessera::kernels
