#pragma once
/// Causal self-attention: projections to queries, keys and values, their norms and rotation,
/// attention, output projection.

#include <optional>
#include <string>

#include "layers/norm.hpp"
#include "layers/qkv_projection.hpp"
#include "tessera/kernels/attention/attention.hpp"

namespace tessera::model::detail {

struct AttentionOptions {
  QkvOptions qkv;
  double scale = 1.0;  ///< scale of q.k
  kernels::AttentionMask mask{};
  double dropout = 0.0;
  int layer = 0;
  int rotary_dim = 0;  ///< first elements of a head that are rotated; 0: none
  /// Norms of queries and keys before the rotation. The widths are replaced.
  HeadNormScope head_norms = HeadNormScope::none;
  NormOptions head_norm{};
  std::string query_norm_name{}, key_norm_name{};  ///< below the attention
  Bias output_bias = Bias::zeros;
  double output_stddev = 0.02;  ///< initial weights of the output projection
  std::string output_name{};    ///< below the attention
};

class CausalSelfAttention {
 public:
  struct Saved {
    QkvProjection::Rows qkv;  ///< with rotated queries and keys, unless those are normalized
    TensorView query, key;    ///< normalized and rotated; empty without norms
    TensorView query_rstd, key_rstd;
    TensorView mixed;  ///< [R, heads * head_dim], before the output projection
    TensorView lse;    ///< [B, heads, T] fp32
  };

  /// Adds the parameters to @p unit, below "<name>.".
  CausalSelfAttention(UnitSpec& unit, std::string const& name, AttentionOptions const& options);

  template <class Visit>
  void visit_linear(Visit const& visit) {
    qkv_.visit_linear(visit);
    visit(output_);
  }

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
  Saved allocate(PassContext const& pass, WeightLease const& weights) const;
  /// What attention reads.
  kernels::AttentionGradients operands(Saved const& saved) const;
  /// Writes the new keys and values of the pass into its cache.
  void append(PassContext const& pass, kernels::AttentionGradients const& heads) const;
  /// mixed [R, .] from the cache.
  void decode(PassContext const& pass, kernels::ConstHeadsView const& query,
              TensorView mixed) const;
  void rotate(PassContext const& pass, kernels::AttentionGradients const& heads,
              kernels::RotaryDirection direction) const;

  AttentionOptions options_;
  QkvProjection qkv_;
  std::optional<HeadNorm> query_norm_, key_norm_;
  Linear output_;
};

}  // namespace tessera::model::detail
