#pragma once
/// The low-rank part of an adapted linear layer.

#include <string>

#include "layers/pass.hpp"
#include "tessera/model/layers/lora.hpp"

namespace tessera::model::detail {

/// Where a linear layer is: layers of one block have their own random numbers.
struct LinearPlace {
  int block = 0;
  int index = 0;  ///< in the block
};

class LoraLayer {
 public:
  /// Adds "lora_A.weight" [rank, in] and "lora_B.weight" [out, rank] of layer @p name to @p unit.
  LoraLayer(UnitSpec& unit, std::string const& name, std::int64_t in, std::int64_t out,
            LoraOptions const& options, LinearPlace place);

  /// out [R, out] += scale * dropout(in) A^T B^T.
  void add_output(PassContext const& pass, WeightLease const& weights, TensorView out,
                  ConstTensorView in) const;
  /// Gradients of A and B as the lease says; din [R, in] += what reaches the input, unless it is
  /// empty. The product with A is computed again.
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                ConstTensorView dout, ConstTensorView in) const;

 private:
  Dropout dropout(PassContext const& pass) const;
  /// @p in itself, or with dropout a copy.
  ConstTensorView dropped(PassContext const& pass, ConstTensorView in) const;
  /// scale * in A^T  [R, rank].
  TensorView reduce(PassContext const& pass, WeightLease const& weights, ConstTensorView in) const;

  std::int64_t in_, rank_;
  float scale_;
  double dropout_;
  LinearPlace place_;
  std::size_t a_, b_;
};

}  // namespace tessera::model::detail
