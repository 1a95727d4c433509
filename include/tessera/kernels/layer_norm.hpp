#pragma once
/// Layer normalization over the last dimension.  Ba, Kiros, Hinton, arXiv 1607.06450.

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

/// out = (in - mean) * rstd * gamma + beta, per row.
/// Shapes   in, out [R, C] T;  gamma, beta [C] T;  mean, rstd [R] fp32 (saved for the backward
/// pass)
void layer_norm(Queue& q, TensorView out, TensorView mean, TensorView rstd, ConstTensorView in,
                ConstTensorView gamma, ConstTensorView beta, float epsilon);

/// As above on the sum residual + dropout(branch), which is written to @p sum first: one pass for
/// the end of one half of a transformer block and the start of the next.
void residual_layer_norm(Queue& q, TensorView sum, TensorView out, TensorView mean, TensorView rstd,
                         ConstTensorView residual, ConstTensorView branch, Dropout const& drop,
                         ConstTensorView gamma, ConstTensorView beta, float epsilon);

/// din (+)= gradient with respect to the normalized input (accumulate_din: the residual stream's
/// gradient is already there); dgamma, dbeta [C] (+)= theirs. Deterministic: rows are summed in
/// blocks, then the blocks, both in an order that the shape gives. Traffic on a device, 16-bit
/// elements, C a multiple of 8 up to 4096: 6 R C bytes (8 with accumulate_din), and at most R C / 2
/// of partial sums written and read again.
/// @p workspace: at least layer_norm_backward_workspace(q, R, C) fp32 elements; overwritten.
void layer_norm_backward(Queue& q, TensorView din, bool accumulate_din, TensorView dgamma,
                         TensorView dbeta, bool accumulate_parameters, ConstTensorView dout,
                         ConstTensorView in, ConstTensorView mean, ConstTensorView rstd,
                         ConstTensorView gamma, TensorView workspace);
std::int64_t layer_norm_backward_workspace(Queue const& q, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels
