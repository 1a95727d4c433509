#pragma once
/// Causal self-attention with a fused query-key-value projection.

#include <string>

#include "detail/linear.hpp"
#include "tessera/kernels/attention.hpp"

namespace tessera::model::detail {

struct AttentionOptions {
  std::int64_t width = 0;
  int heads = 0;
  int kv_heads = 0;  ///< = heads, or fewer when heads share keys and values
  int head_dim = 0;
  double scale = 1.0;  ///< of q.k
  double dropout = 0.0;
  int layer = 0;
  WeightLayout layout = WeightLayout::in_out;
  double stddev = 0.02;             ///< initial weights of the query-key-value projection
  double projection_stddev = 0.02;  ///< of the output projection, scaled with depth
};

class CausalSelfAttention {
 public:
  struct Saved {
    TensorView qkv;    ///< [R, (heads + 2 kv_heads) * head_dim]
    TensorView mixed;  ///< [R, heads * head_dim], before the output projection
    TensorView lse;    ///< [B, heads, T] fp32
  };

  /// Adds "<name>.c_attn.*" and "<name>.c_proj.*" to @p unit.
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
  std::int64_t qkv_width() const {
    return static_cast<std::int64_t>(options_.heads + 2 * options_.kv_heads) * options_.head_dim;
  }
  std::int64_t mixed_width() const {
    return static_cast<std::int64_t>(options_.heads) * options_.head_dim;
  }

  AttentionOptions options_;
  Linear qkv_;
  Linear output_;
};

}  // namespace tessera::model::detail
