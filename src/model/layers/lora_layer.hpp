#pragma once
/// The low-rank part of an adapted linear layer, and with DoRA the magnitudes of its outputs.

#include <optional>
#include <string>

#include "layers/pass.hpp"
#include "tessera/model/layers/lora.hpp"

namespace tessera::model::detail {

/// Where a linear layer is: layers of one block have their own random numbers.
struct LinearPlace {
  int block = 0;
  int index = 0;  ///< in the block
};

/// The frozen part of an adapted layer.
struct AdaptedBase {
  ConstTensorView weight;  ///< [out, in]; [in, out] if transposed
  ConstTensorView bias{};  ///< [out]; empty: none
  bool transposed = false;
};

/// Gradients of the results that an adapted layer adds up: with x~ for x after dropout, gradients
/// of W x, of W x~ and of the low-rank product.
struct AdaptedGradients {
  ConstTensorView base;
  ConstTensorView dropped;  ///< empty where W x~ is not a result
  ConstTensorView low_rank;
};

/// y = W x + b + s B A x~, where x~ is x after dropout. DoRA divides rows of V = W + s B A by their
/// norms, constants in gradients, and multiplies them by magnitudes: with g = magnitude / norm,
/// y = W x + b + (g - 1) W x~ + g s B A x~. PEFT's DoraLinearLayer computes the same.
class LoraLayer {
 public:
  /// Adds "lora_A.weight" [rank, in], "lora_B.weight" [out, rank] and with DoRA
  /// "lora_magnitude_vector" [out] of layer @p name to @p unit.
  LoraLayer(UnitSpec& unit, std::string const& name, std::int64_t in, std::int64_t out,
            LoraOptions const& options, LinearPlace place);

  /// Makes the layer's result of @p out [R, out], which holds W in + b.
  void add_output(PassContext const& pass, WeightLease const& weights, TensorView out,
                  ConstTensorView in, AdaptedBase const& base) const;
  /// Returns what @p dout [R, out] is for the parts of the result, and writes the gradient of the
  /// magnitudes as the lease says. The results stay in the arena.
  AdaptedGradients split(PassContext const& pass, BackwardLeases const& leases,
                         ConstTensorView dout, ConstTensorView in, AdaptedBase const& base) const;
  /// Gradients of A and B as the lease says; din [R, in] += what reaches the input, unless it is
  /// empty. The product with A is computed again.
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                AdaptedGradients const& gradients, ConstTensorView in,
                AdaptedBase const& base) const;
  bool has_magnitudes() const { return magnitudes_.has_value(); }

 private:
  struct Factors {
    TensorView values, inverse_norms;  ///< [out] fp32: magnitude / norm, 1 / norm
  };

  Dropout dropout(PassContext const& pass) const;
  /// @p in itself, or with dropout a copy.
  ConstTensorView dropped(PassContext const& pass, ConstTensorView in) const;
  /// scale * in A^T  [R, rank].
  TensorView reduce(PassContext const& pass, WeightLease const& weights, ConstTensorView in) const;
  /// out [R, out] += scale * in A^T B^T.
  void add_low_rank(PassContext const& pass, WeightLease const& weights, TensorView out,
                    ConstTensorView in) const;
  /// out [R, out] = in V^T.
  void multiply(PassContext const& pass, WeightLease const& weights, TensorView out,
                ConstTensorView in, AdaptedBase const& base) const;
  /// The factors stay in the arena.
  Factors factors(PassContext const& pass, WeightLease const& weights,
                  AdaptedBase const& base) const;

  std::int64_t in_, out_, rank_;
  float scale_;
  double dropout_;
  LinearPlace place_;
  std::size_t a_, b_;
  std::optional<std::size_t> magnitudes_;
};

}  // namespace tessera::model::detail
