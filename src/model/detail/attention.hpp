#pragma once
/// Causal self-attention: projections to queries, keys and values, attention, output projection.

#include <string>

#include "detail/qkv_projection.hpp"

namespace tessera::model::detail {

struct AttentionOptions {
  QkvOptions qkv;
  double scale = 1.0;  ///< of q.k
  double dropout = 0.0;
  int layer = 0;
  Bias output_bias = Bias::zeros;
  double output_stddev = 0.02;  ///< initial weights of the output projection
  std::string output_name{};    ///< below the attention
};

class CausalSelfAttention {
 public:
  struct Saved {
    QkvProjection::Rows qkv;
    TensorView mixed;  ///< [R, heads * head_dim], before the output projection
    TensorView lse;    ///< [B, heads, T] fp32
  };

  /// Adds the parameters of the projections to @p unit, below "<name>.".
  CausalSelfAttention(UnitSpec& unit, std::string const& name, AttentionOptions const& options);

  /// The part before the output projection.
  Saved mix(PassContext const& pass, WeightLease const& weights, ConstTensorView in) const;
  /// out [R, width] = mixed * W + b.
  void project(PassContext const& pass, WeightLease const& weights, TensorView out,
               Saved const& saved) const;
  /// din [R, width] overwritten; it must not alias dout.
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                ConstTensorView dout, ConstTensorView in, Saved const& saved) const;

 private:
  kernels::AttentionConfig config(PassContext const& pass) const;
  Dropout dropout(PassContext const& pass) const;

  AttentionOptions options_;
  QkvProjection qkv_;
  Linear output_;
};

}  // namespace tessera::model::detail
