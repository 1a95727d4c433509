#pragma once
/// Two-layer perceptron of a transformer block: project(gelu_new(expand(in))).

#include <string>

#include "detail/linear.hpp"

namespace tessera::model::detail {

struct MlpOptions {
  std::int64_t width = 0;
  std::int64_t inner = 0;
  WeightLayout layout = WeightLayout::in_out;
  Bias bias = Bias::zeros;
  double stddev = 0.02;
  double projection_stddev = 0.02;            ///< of the second layer
  std::string expand_name{}, project_name{};  ///< below the perceptron
};

class Mlp {
 public:
  struct Saved {
    TensorView before;     ///< [R, inner], input of the activation
    TensorView activated;  ///< [R, inner]
  };

  /// Adds the parameters of both layers to @p unit, below "<name>.".
  Mlp(UnitSpec& unit, std::string const& name, MlpOptions const& options);

  /// The part before the second layer.
  Saved expand(PassContext const& pass, WeightLease const& weights, ConstTensorView in) const;
  /// out [R, width] = activated * W + b.
  void project(PassContext const& pass, WeightLease const& weights, TensorView out,
               Saved const& saved) const;
  /// din [R, width] overwritten; it must not alias dout.
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                ConstTensorView dout, ConstTensorView in, Saved const& saved) const;

 private:
  Linear expand_;
  Linear project_;
};

}  // namespace tessera::model::detail
