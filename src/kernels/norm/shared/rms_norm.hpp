#pragma once
/// Root mean square normalization over the last dimension.  Zhang & Sennrich, "Root Mean Square
/// Layer Normalization", NeurIPS 2019.
///
/// R rows of C columns; T is fp32, fp16 or bf16, arithmetic is fp32. All results repeat bit for
/// bit.

#include "tessera/kernels/launch/heads.hpp"
#include "tessera/kernels/norm/layer_norm.hpp"

namespace tessera::kernels {

/// Where 16-bit results are rounded. With fp32 there is no difference.
enum class RmsNormRounding {
  before_gamma,  ///< gamma * round(in * rstd), rounded again: Llama, Mistral, Qwen
  after_gamma,   ///< round(gamma * in * rstd): Gemma, OLMo2
};

/// The learned parameter and how it is used.
struct RmsNormWeights {
  ConstTensorView gamma;  ///< [C] T
  float epsilon = 1e-6f;
  float gamma_offset = 0.0f;  ///< added to gamma; 1 for Gemma
  RmsNormRounding rounding = RmsNormRounding::before_gamma;
};
/// The normalized rows, and what the backward pass needs.
struct RmsNormOutput {
  TensorView out;   ///< [R, C] T, or 16 bits of rows in fp32
  TensorView rstd;  ///< [R] fp32, 1 / sqrt(mean of squares + epsilon)
};

/// out = in * rstd * (gamma_offset + gamma) per row; in [R, C] T. All outputs are overwritten; out
/// may be in. 2 bytes read and 2 written per 16-bit element.
void rms_norm(Queue& q, RmsNormWeights const& norm, RmsNormOutput const& to, ConstTensorView in);

/// sum [R, C] T = residual + dropout(branch), then rms_norm() of sum as rounded to T. sum may alias
/// residual or branch. 4 bytes read and 4 written per 16-bit element.
void residual_rms_norm(Queue& q, RmsNormWeights const& norm, TensorView sum,
                       RmsNormOutput const& to, ResidualBranch const& in);

struct RmsNormGradients {
  GradientTarget din;     ///< [R, C] T
  GradientTarget dgamma;  ///< [C] fp32 or T
  TensorView copy{};      ///< [R, C] T, or 16 bits of rows in fp32: receives din as well; or empty
};
struct RmsNormBackwardInput {
  ConstTensorView dout;  ///< [R, C] T
  ConstTensorView in;    ///< [R, C] T, the input of the forward pass (residual: its sum)
  ConstTensorView rstd;  ///< [R] fp32, of the forward pass
};
/// With x^ = in rstd and h = dout (gamma_offset + gamma):
///   din (+)= rstd (h - x^ mean(h x^));  dgamma (+)= sum dout x^
/// din may be dout when it is overwritten. Deterministic: chunks of rows are summed, then the
/// chunks, in an order that the shape gives.
/// @p workspace: at least rms_norm_backward_workspace(q, R, C) fp32 elements; overwritten.
void rms_norm_backward(Queue& q, RmsNormWeights const& norm, RmsNormGradients const& to,
                       RmsNormBackwardInput const& from, TensorView workspace);
std::int64_t rms_norm_backward_workspace(Queue const& q, std::int64_t rows, std::int64_t columns);

/// Norms over parts of rows: `heads` parts of `width` columns per position. Qwen3 normalizes each
/// head (width head_dim, the same gamma for all); OLMo2 all heads of a position together (heads 1,
/// width heads * head_dim). gamma has `width` elements.
struct HeadNormShape {
  Dtype dtype = Dtype::fp32;
  std::int64_t positions = 0;  ///< B * T
  int heads = 0;
  std::int64_t width = 0;
};
struct HeadNormOutput {
  HeadsView out;    ///< a head_stride of 0 means width
  TensorView rstd;  ///< [positions, heads] fp32
};
/// rms_norm() of each head in place (equal views) or into another buffer.
void rms_norm_heads(Queue& q, RmsNormWeights const& norm, HeadNormShape const& shape,
                    HeadNormOutput const& to, ConstHeadsView const& in);

struct HeadNormGradients {
  HeadsView din;          ///< overwritten; may be dout
  GradientTarget dgamma;  ///< [width] fp32 or T
};
struct HeadNormBackwardInput {
  ConstHeadsView dout, in;  ///< in: the input of the forward pass
  ConstTensorView rstd;     ///< [positions, heads] fp32
};
/// @p workspace: at least rms_norm_backward_workspace(q, positions * heads, width) fp32 elements.
void rms_norm_heads_backward(Queue& q, RmsNormWeights const& norm, HeadNormShape const& shape,
                             HeadNormGradients const& to, HeadNormBackwardInput const& from,
                             TensorView workspace);

}  // namespace tessera::kernels
