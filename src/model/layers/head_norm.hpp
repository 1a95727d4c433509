#pragma once
/// Root mean square normalization of the queries or keys of a row: each head by itself, or all
/// heads of the row together.

#include <string>

#include "layers/norm.hpp"
#include "tessera/kernels/norm/rms_norm.hpp"

namespace tessera::model::detail {

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
