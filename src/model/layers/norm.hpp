#pragma once
/// Normalization of rows with learned weights.

#include <string>

#include "layers/pass.hpp"
#include "tessera/kernels/norm/layer_norm.hpp"
#include "tessera/kernels/norm/rms_norm.hpp"
#include "tessera/model/layers/layers.hpp"

namespace tessera::model::detail {

struct NormOptions {
  std::int64_t width = 0;
  double epsilon = 1e-5;
  NormKind kind = NormKind::layer;
  double gamma_offset = 0.0;  ///< rms: added to gamma, 1 in Gemma
  kernels::RmsNormRounding rounding = kernels::RmsNormRounding::before_gamma;  ///< rms
};

/// Adds gamma to @p unit, so that the norm starts with a factor of 1.
std::size_t add_gamma(UnitSpec& unit, std::string const& name, NormOptions const& options);
/// The weights of a norm of kind rms.
kernels::RmsNormWeights rms_weights(NormOptions const& options, ConstTensorView gamma);

class Norm {
 public:
  /// What backward needs besides the input.
  struct Saved {
    TensorView mean, rstd;  ///< [R] fp32; rms has no mean
  };
  /// End of a residual branch, added before the norm: sum = residual + dropout(branch).
  struct Residual {
    TensorView sum;  ///< overwritten
    ConstTensorView residual;
    ConstTensorView branch;
    Dropout drop;
  };

  /// Adds "<name>.weight", and "<name>.bias" (zeros) of layer normalization, to @p unit.
  Norm(UnitSpec& unit, std::string const& name, NormOptions const& options);

  /// Norms compute in the stream's dtype; input rows of another one are converted.
  /// out [R, width] of the stream's or the products' dtype, overwritten.
  Saved forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                ConstTensorView in) const;
  /// Normalizes a residual sum, which is written in the same pass.
  Saved forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                Residual const& in) const;

  /// Where the gradient of the input goes.
  struct InputGradient {
    kernels::GradientTarget stream;  ///< [R, width] of the stream's dtype
    TensorView copy{};  ///< [R, width] of the products' dtype: receives it as well; or empty
  };
  /// dout of the stream's dtype; parameter gradients as the lease says.
  void backward(PassContext const& pass, BackwardLeases const& leases, InputGradient const& din,
                ConstTensorView dout, ConstTensorView in, Saved const& saved) const;

 private:
  bool is_rms() const { return options_.kind == NormKind::rms; }
  kernels::LayerNormWeights weights_of(WeightLease const& weights) const;
  Saved allocate(PassContext const& pass, std::int64_t rows) const {
    return {is_rms() ? TensorView{} : pass.allocate_fp32(rows), pass.allocate_fp32(rows)};
  }
  void backward_rms(PassContext const& pass, BackwardLeases const& leases, InputGradient const& din,
                    kernels::RmsNormBackwardInput const& from) const;

  NormOptions options_;
  std::size_t gamma_;
  std::size_t beta_ = 0;
};

// Root mean square normalization of the queries or keys of a row: each head by itself, or all
// heads of the row together.

enum class HeadNormScope {
  none,
  each_head,  ///< gamma [head_dim]: Qwen3
  all_heads,  ///< gamma [heads * head_dim]: OLMo2
};

class HeadNorm {
 public:
  struct Options {
    NormOptions norm;  ///< its width is replaced
    HeadNormScope scope = HeadNormScope::each_head;
    int heads = 0;
    int head_dim = 0;
  };
  /// Where heads are read and written.
  struct Operands {
    kernels::HeadsView out;
    kernels::ConstHeadsView in;
  };

  /// Adds "<name>.weight" to @p unit.
  HeadNorm(UnitSpec& unit, std::string const& name, Options const& options);

  /// @return 1 / root mean square of each normalized part, for backward
  TensorView forward(PassContext const& pass, WeightLease const& weights,
                     Operands const& operands) const;
  /// @p gradient [heads of all positions] becomes that of the input.
  void backward(PassContext const& pass, BackwardLeases const& leases,
                kernels::HeadsView const& gradient, kernels::ConstHeadsView const& in,
                ConstTensorView rstd) const;

 private:
  kernels::HeadNormShape shape(PassContext const& pass) const;

  Options options_;
  std::size_t gamma_;
};

}  // namespace tessera::model::detail
