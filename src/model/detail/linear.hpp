#pragma once
/// Affine map of rows: out = in * W + b.

#include <string>

#include "detail/pass.hpp"

namespace tessera::model::detail {

/// How W lies in memory: GPT-2's Conv1D has [in, out], torch.nn.Linear [out, in].
enum class WeightLayout { in_out, out_in };
enum class Bias { none, zeros };

struct LinearShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  WeightLayout layout = WeightLayout::in_out;
  Bias bias = Bias::zeros;
};

class Linear {
 public:
  /// Adds "<name>.weight" (normal with @p stddev) and "<name>.bias" to @p unit.
  Linear(UnitSpec& unit, std::string const& name, LinearShape shape, double stddev);

  /// out [R, out] overwritten, in [R, in].
  void forward(Pass const& pass, WeightLease const& weights, TensorView out, ConstTensorView in) const;
  /// din [R, in] overwritten unless empty; weight and bias gradients as the lease says. din must not alias dout.
  void backward(Pass const& pass, WeightLease const& weights, GradientLease const& gradients, TensorView din, ConstTensorView dout,
                ConstTensorView in) const;

  LinearShape const& shape() const { return shape_; }

 private:
  LinearShape shape_;
  std::size_t weight_;
  std::size_t bias_ = 0;
};

}  // namespace tessera::model::detail
