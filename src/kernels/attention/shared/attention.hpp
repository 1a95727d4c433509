#pragma once
/// Causal multi-head attention without a T x T buffer: tiles with an online softmax.
/// Dao et al., "FlashAttention", NeurIPS 2022, algorithm 1; Milakov & Gimelshein, arXiv 1805.02867.

#include <cstdint>
#include <optional>

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/launch/heads.hpp"

namespace tessera::kernels {

/// Which scores count, besides causality, and how.
struct AttentionMask {
  std::int64_t window = 0;  ///< query t sees the keys t - window < s <= t; 0: all s <= t
  float soft_cap = 0.0f;    ///< scores become soft_cap * tanh(score / soft_cap); 0: off

  bool operator==(AttentionMask const&) const = default;
};

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  int heads = 0;
  int kv_heads = 0;  ///< = heads, or fewer for grouped-query and multi-query attention
  int head_dim = 0;
  float scale = 1.0f;  ///< scale of q.k, 1/sqrt(head_dim) for GPT-2
  AttentionMask mask{};
};

/// What is computed. The dropout of attention weights has element (b, h, t, s) at
/// first_element + ((b * heads + h) * T + t) * T + s; where cuDNN computes it draws masks of its
/// own, a function of the Dropout and of (b, h, t, s).
struct AttentionConfig {
  Dtype dtype = Dtype::fp32;  ///< T of all operands but lse
  AttentionShape shape;
  Dropout drop;
};

struct AttentionInput {
  ConstHeadsView query, key, value;
  /// [B, T] int32 in the queue's memory space: the position of the first token of each token's
  /// document in its row, which no query sees beyond; not decreasing. Empty: a row is one document.
  ConstTensorView documents{};
};
struct AttentionOutput {
  TensorView out;  ///< [B, T, heads * head_dim] T
  TensorView lse;  ///< [B, heads, T] fp32, the log-sum-exp of each row of scores
};

/// out[b,t,h,:] = sum_s P[t,s] v[s],  P = dropout(softmax_s(scale q.k)) over the keys s <= t that
/// the mask and the query's document leave;  lse[b,h,t] = log sum_s exp(scale q.k). Tiles without
/// such keys are skipped.
/// Outputs are overwritten and must not alias inputs. Deterministic. A tile of queries (64 to
/// 128 rows) reads each key and value that it sees once.
void attention(Queue& q, AttentionConfig const& config, AttentionOutput const& to,
               AttentionInput const& from);

/// Gradients of causal multi-head attention.  Dao et al., "FlashAttention", NeurIPS 2022,
/// algorithm 4; "FlashAttention-2", arXiv 2307.08691, section 3.1.
struct AttentionGradients {
  HeadsView query, key, value;  ///< overwritten; must not alias any input
};
/// What the forward pass has saved, and the gradient of its output.
struct AttentionSaved {
  ConstTensorView dout;  ///< [B, T, heads * head_dim] T
  ConstTensorView out;   ///< [B, T, heads * head_dim] T
  ConstTensorView lse;   ///< [B, heads, T] fp32
};

/// With P = softmax(scale q.k), f the dropout factors and delta_t = dout_t . out_t:
///   dv_s = sum_t (P f)[t,s] dout_t;  dP = dout v;  dS = P (dP f - delta);
///   dq_t = scale sum_s dS[t,s] k_s;  dk_s = scale sum_t dS[t,s] q_t
/// P is recomputed from lse, tile by tile. Deterministic; no atomics.
/// @p workspace: at least attention_backward_workspace() fp32 elements; overwritten.
void attention_backward(Queue& q, AttentionConfig const& config, AttentionGradients const& to,
                        AttentionInput const& from, AttentionSaved const& saved,
                        TensorView workspace);
/// Returns the elements of the workspace: on a device one per row of a head (delta), on the host
/// complete fp32 rows as well.
std::int64_t attention_backward_workspace(Queue const& q, AttentionShape const& shape);

/// A GPU on which cuDNN computes the attention that it serves.
struct CudnnDevice {
  bool deterministic = true;
  int major = 9;  ///< compute capability
};

/// While one lives, the workspace is known that cuDNN allocates for the backward passes of its
/// thread which are planned for a device, with the mask of documents.
class AttentionPlanning {
 public:
  /// @param device  none: cuDNN computes nothing
  explicit AttentionPlanning(std::optional<CudnnDevice> device);
  ~AttentionPlanning();
  AttentionPlanning(AttentionPlanning const&) = delete;
  AttentionPlanning& operator=(AttentionPlanning const&) = delete;
  std::size_t workspace_bytes() const { return static_cast<std::size_t>(workspace_bytes_); }

 private:
  friend void attention_backward(Queue& q, AttentionConfig const& config,
                                 AttentionGradients const& to, AttentionInput const& from,
                                 AttentionSaved const& saved, TensorView workspace);
  std::optional<CudnnDevice> device_;
  AttentionPlanning* outer_;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace tessera::kernels
