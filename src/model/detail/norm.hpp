#pragma once
/// Normalization of rows with learned weights.

#include <string>

#include "detail/pass.hpp"
#include "tessera/kernels/layer_norm.hpp"

namespace tessera::model::detail {

struct NormOptions {
  std::int64_t width = 0;
  double epsilon = 1e-5;
};

class Norm {
 public:
  /// What backward needs besides the input.
  struct Saved {
    TensorView mean, rstd;  ///< [R] fp32
  };
  /// End of a residual branch, added before the norm: sum = residual + dropout(branch).
  struct Residual {
    TensorView sum;  ///< overwritten
    ConstTensorView residual;
    ConstTensorView branch;
    Dropout drop;
  };

  /// Adds "<name>.weight" (ones) and "<name>.bias" (zeros) to @p unit.
  Norm(UnitSpec& unit, std::string const& name, NormOptions const& options);

  /// out [R, width] overwritten.
  Saved forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                ConstTensorView in) const;
  /// The same on a residual sum, which is written on the way.
  Saved forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                Residual const& in) const;

  /// din [R, width]; parameter gradients as the lease says.
  void backward(PassContext const& pass, BackwardLeases const& leases,
                kernels::GradientTarget const& din, ConstTensorView dout, ConstTensorView in,
                Saved const& saved) const;

 private:
  kernels::LayerNormWeights weights_of(WeightLease const& weights) const;
  Saved allocate(PassContext const& pass, std::int64_t rows) const {
    return {pass.allocate_fp32(rows), pass.allocate_fp32(rows)};
  }

  NormOptions options_;
  std::size_t gamma_;
  std::size_t beta_;
};

}  // namespace tessera::model::detail
