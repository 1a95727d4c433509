#pragma once
/// Token embeddings, with learned position embeddings where a model has them.

#include <optional>
#include <string>

#include "layers/pass.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::model::detail {

struct EmbeddingOptions {
  std::string token_name;
  std::string position_name;               ///< empty: no learned positions
  std::vector<std::string> token_aliases;  ///< further names of the token weights, of a tied head
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t width = 0;
  double stddev = 0.02;
  double dropout = 0.0;
  double noise_alpha = 0.0;      ///< NEFTune's; 0: no noise
  std::int64_t padding_id = -1;  ///< row without gradient, as nn.Embedding's padding_idx; -1: none
  /// Scale of the token rows, rounded to the working dtype as transformers does
  double scale = 1.0;
};

class Embedding {
 public:
  Embedding(UnitSpec& unit, EmbeddingOptions const& options);

  /// out [B * T, width] overwritten; tokens [B, T] int32.
  void forward(PassContext const& pass, WeightLease const& weights, TensorView out,
               ConstTensorView tokens) const;

  /// What the backward pass reads.
  struct BackwardInput {
    ConstTensorView dout;                   ///< [B * T, width]
    ConstTensorView tokens;                 ///< [B, T] int32
    ConstTensorView order, position_order;  ///< orders of Inputs, for a device
  };
  /// Gradients of the tables, overwritten or added to as the lease says.
  void backward(PassContext const& pass, GradientLease const& gradients,
                BackwardInput const& from) const;
  /// Zero gradients of the positions, for a tied head, which takes the unit's first lease and
  /// writes the token gradients only.
  void clear_positions(PassContext const& pass, GradientLease const& gradients) const;

  std::size_t token_weights() const { return tokens_; }
  std::int64_t vocabulary() const { return options_.vocabulary; }

 private:
  /// A copy of the padding row that the backward pass must leave as it is; empty: there is none, or
  /// its gradient begins at zero.
  TensorView padding_row(PassContext const& pass, GradientLease const& gradients) const;
  Dropout dropout(PassContext const& pass) const;
  kernels::Noise noise(PassContext const& pass) const;
  float scale(PassContext const& pass) const;

  EmbeddingOptions options_;
  std::size_t tokens_;
  std::optional<std::size_t> positions_;
};

}  // namespace tessera::model::detail
