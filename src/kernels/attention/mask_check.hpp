#pragma once
/// Does attention of a library that draws its own dropout masks train correctly? Its masks are not
/// documented, so a run finds them: with q = k = 0 all probabilities of query t are 1 / (t + 1),
/// and one-hot values (or output gradients) show which ones the library has kept.

#include <functional>
#include <string>
#include <vector>

#include "tessera/kernels/attention/attention.hpp"

namespace tessera::kernels::detail {

/// One call of attention, forward and backward, in host memory: operands and gradients
/// [B, T, heads or kv_heads, head_dim] fp32, whose values config.dtype holds exactly.
struct AttentionSample {
  AttentionConfig config;
  std::vector<float> query, key, value, dout;         ///< given
  std::vector<float> out, lse, dquery, dkey, dvalue;  ///< computed; lse [B, heads, T]
};
/// Computes a sample; returns why it cannot, empty when it has.
using ComputeSample = std::function<std::string(AttentionSample&)>;

/// What is wrong with the dropout of @p compute at the shape and dropout of @p config, empty when
/// nothing is. Two samples of at most four heads per key-value head are computed: a short one,
/// whose masks are read completely, and one of the sequence's own length, read at three places.
/// Checked:
///  - each probability is dropped or scaled by 1 / (1 - p), and 1 - p of them are kept
///  - rows, columns, heads, sequences, layers and micro-batches have masks of their own
///  - the same call gives the same masks, and the backward pass those of the forward pass
///  - with these masks output, log-sum-exp and gradients are those of the formula in double
///    precision, for random operands
/// Takes up to a second.
std::string check_masks(AttentionConfig const& config, ComputeSample const& compute);

}  // namespace tessera::kernels::detail
