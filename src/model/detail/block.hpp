#pragma once
/// Pre-norm transformer block:  x1 = x + dropout(attention(norm_1(x)));  out = x1 +
/// dropout(mlp(norm_2(x1))). Radford et al., "Language Models are Unsupervised Multitask Learners",
/// 2019, section 2.3.

#include "detail/attention.hpp"
#include "detail/mlp.hpp"
#include "detail/norm.hpp"

namespace tessera::model::detail {

class Block {
 public:
  struct Options {
    int layer = 0;
    std::int64_t width = 0;
    double residual_dropout = 0.0;
  };
  /// Activations that backward needs besides the block's input: 15 * R * width elements for GPT-2.
  struct Saved {
    LayerNorm::Saved norm_1, norm_2;
    CausalSelfAttention::Saved attention;
    Mlp::Saved mlp;
    TensorView normed_1, normed_2;  ///< inputs of attention and mlp
    TensorView middle;              ///< x1
  };

  Block(Options options, LayerNorm norm_1, CausalSelfAttention attention, LayerNorm norm_2,
        Mlp mlp);

  /// out [R, width] overwritten; the returned views stay in the arena.
  Saved forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                ConstTensorView in) const;
  /// Only the saved activations, bit for bit those of forward(). @p scratch [R, width] is
  /// overwritten.
  Saved recompute(PassContext const& pass, WeightLease const& weights, TensorView scratch,
                  ConstTensorView in) const;
  /// @p stream [R, width] holds the gradient of the output and receives that of the input.
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                ConstTensorView in, Saved const& saved) const;

 private:
  Dropout dropout(PassContext const& pass, DropoutSite site) const;

  Options options_;
  LayerNorm norm_1_;
  CausalSelfAttention attention_;
  LayerNorm norm_2_;
  Mlp mlp_;
};

}  // namespace tessera::model::detail
