#pragma once
/// Layer normalization over the last dimension.  Ba, Kiros, Hinton, arXiv 1607.06450.
///
/// R rows of C columns; T is fp32, fp16 or bf16, arithmetic is fp32. All results repeat bit for
/// bit.

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// The learned parameters and epsilon.
struct LayerNormWeights {
  ConstTensorView gamma;  ///< [C] T
  ConstTensorView beta;   ///< [C] T
  float epsilon = 1e-5f;
};
/// The normalized rows, and what the backward pass needs.
struct LayerNormOutput {
  TensorView out;   ///< [R, C] T, or 16 bits of rows in fp32
  TensorView mean;  ///< [R] fp32
  TensorView rstd;  ///< [R] fp32, 1 / sqrt(variance + epsilon)
};

/// out = (in - mean) * rstd * gamma + beta per row; in [R, C] T. All outputs are overwritten; out
/// must not alias in. 2 bytes read and 2 written per 16-bit element.
void layer_norm(Queue& q, LayerNormWeights const& norm, LayerNormOutput const& to,
                ConstTensorView in);

/// The end of a residual branch.
struct ResidualBranch {
  ConstTensorView residual;  ///< [R, C] T
  ConstTensorView branch;    ///< [R, C] T
  Dropout drop;              ///< dropout of the branch
};
/// sum [R, C] T = residual + dropout(branch), then layer_norm() of sum as rounded to T. One kernel
/// for the end of one half of a transformer block and the start of the next. sum may alias residual
/// or branch. 4 bytes read and 4 written per 16-bit element.
void residual_layer_norm(Queue& q, LayerNormWeights const& norm, TensorView sum,
                         LayerNormOutput const& to, ResidualBranch const& in);

struct LayerNormGradients {
  GradientTarget din;  ///< [R, C] T; add where the residual stream's gradient is already in it
  TensorView dgamma;   ///< [C] fp32 or T
  TensorView dbeta;    ///< [C], dgamma's dtype
  WriteMode parameters = WriteMode::overwrite;  ///< write mode of dgamma and dbeta
  TensorView copy{};  ///< [R, C] T, or 16 bits of rows in fp32: receives din as well; or empty
};
struct LayerNormBackwardInput {
  ConstTensorView dout;        ///< [R, C] T
  ConstTensorView in;          ///< [R, C] T, the input of the forward pass (residual: its sum)
  ConstTensorView mean, rstd;  ///< [R] fp32, of the forward pass
  ConstTensorView gamma;       ///< [C] T
};
/// With x^ = (in - mean) rstd and h = dout gamma:
///   din (+)= rstd (h - mean(h) - x^ mean(h x^));  dgamma (+)= sum dout x^;  dbeta (+)= sum dout
/// din must not alias dout. Deterministic: chunks of rows are summed, then the chunks, in an order
/// that the shape gives. On a device, for 16-bit elements and C a multiple of 8 up to 4096: 6 R C
/// bytes moved (8 with din added to), and at most R C / 2 bytes of partial sums written and read.
/// @p workspace: at least layer_norm_backward_workspace(q, R, C) fp32 elements; overwritten.
void layer_norm_backward(Queue& q, LayerNormGradients const& to, LayerNormBackwardInput const& from,
                         TensorView workspace);
std::int64_t layer_norm_backward_workspace(Queue const& q, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels
