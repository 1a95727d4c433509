#pragma once
/// Final norm, projection to the vocabulary and cross-entropy, in chunks of rows so that logits never exist as a whole.

#include <optional>
#include <string>

#include "detail/norm.hpp"

namespace tessera::model::detail {

class LmHead {
 public:
  /// Weights [V, width] of the projection and where their gradient goes: the head's own, or the token embedding's.
  struct Projection {
    ConstTensorView weight;
    TensorView gradient;
    bool accumulate = false;  ///< the gradient has values already
  };
  struct Options {
    std::int64_t width = 0;
    std::int64_t vocabulary = 0;
  };

  LmHead(LayerNorm norm, Options options) : norm_(norm), options_(options) {}
  /// Gives the head its own projection "<name>" in @p unit.
  void own_projection(UnitSpec& unit, std::string const& name, double stddev);
  /// Position of the head's own projection in its unit; empty when it is tied to the embedding.
  std::optional<std::size_t> projection() const { return projection_; }

  /// losses [R] fp32 of hidden [R, width] against targets [R] int32 (negative: no target).
  void losses(Pass const& pass, WeightLease const& weights, ConstTensorView projection, TensorView losses, ConstTensorView hidden,
              ConstTensorView targets) const;
  /// The same, and gradients: dhidden [R, width] overwritten, scaled by @p gradient_scale.
  void train(Pass const& pass, WeightLease const& weights, GradientLease const& gradients, Projection const& projection,
             float gradient_scale, TensorView losses, TensorView dhidden, ConstTensorView hidden, ConstTensorView targets) const;
  /// logits [R, V] fp32.
  void logits(Pass const& pass, WeightLease const& weights, ConstTensorView projection, TensorView out, ConstTensorView hidden) const;

  /// Rows of logits made at a time: equal chunks of at most 64 MiB of fp32.
  static std::int64_t chunk_rows(std::int64_t rows, std::int64_t vocabulary);

 private:
  LayerNorm norm_;
  Options options_;
  std::optional<std::size_t> projection_;
};

}  // namespace tessera::model::detail
