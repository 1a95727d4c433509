#pragma once
/// Perceptron of a transformer block: project(f(expand(in))), or project(f(gate(in)) * expand(in)).

#include <optional>
#include <string>

#include "layers/linear.hpp"
#include "tessera/kernels/elementwise/activation.hpp"

namespace tessera::model::detail {

enum class MlpKind {
  plain,        ///< two matrices
  gated,        ///< a matrix for the gate as well. Shazeer, arXiv 2002.05202.
  gated_fused,  ///< gate and expansion in one matrix: all rows of the gate first
};

struct MlpOptions {
  std::int64_t width = 0;
  std::int64_t inner = 0;
  MlpKind kind = MlpKind::plain;
  kernels::Activation activation = kernels::Activation::gelu_new;
  WeightLayout layout = WeightLayout::in_out;
  Bias bias = Bias::zeros;
  double stddev = 0.02;
  double projection_stddev = 0.02;  ///< standard deviation of the last layer
  /// Below the perceptron. A fused matrix has the expansion's name.
  std::string gate_name{}, expand_name{}, project_name{};
};

class Mlp {
 public:
  struct Saved {
    TensorView gate;       ///< [R, inner] of a gate with a product of its own
    TensorView before;     ///< [R, inner] of the expansion, or [R, 2 inner] with the gate
    TensorView activated;  ///< [R, inner], input of the last layer
  };

  /// Adds the parameters of the layers to @p unit, below "<name>.".
  Mlp(UnitSpec& unit, std::string const& name, MlpOptions const& options);

  template <class Visit>
  void visit_linear(Visit const& visit) {
    if (gate_) visit(*gate_);
    visit(expand_);
    visit(project_);
  }

  /// Elements of a row of Saved::activated.
  std::int64_t inner() const { return options_.inner; }
  /// The part before the last layer.
  Saved expand(PassContext const& pass, WeightLease const& weights, ConstTensorView in) const;
  /// saved.activated from what came before it, bit for bit as expand() on the host.
  void activate(PassContext const& pass, Saved const& saved) const;
  /// out [R, width] = activated * W + b.
  void project(PassContext const& pass, WeightLease const& weights, TensorView out,
               Saved const& saved) const;
  /// din [R, width] overwritten; it must not alias dout.
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                ConstTensorView dout, ConstTensorView in, Saved const& saved) const;

 private:
  void backward_gated(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                      ConstTensorView dout, ConstTensorView in, Saved const& saved) const;
  bool is_fused_gelu() const {
    return options_.kind == MlpKind::plain &&
           options_.activation == kernels::Activation::gelu_new && !expand_.is_adapted() &&
           !project_.is_adapted();
  }
  /// Gate and expansion, of their own buffers or halves of one.
  template <class Operands, class View>
  Operands gate_and_up(View gate, View before) const {
    if (!gate.empty()) return {{gate.data(), gate.dim(1)}, {before.data(), before.dim(1)}};
    auto* const base = static_cast<typename View::Byte*>(before.data());
    return {
        {base, before.dim(1)},
        {base + static_cast<std::size_t>(options_.inner) * size_of(before.dtype()), before.dim(1)}};
  }
  kernels::GatedShape gated_shape(PassContext const& pass) const {
    return {.dtype = pass.dtype, .rows = pass.positions(), .width = options_.inner};
  }

  MlpOptions options_;
  /// Whether gate and expansion have a product of their own each.
  bool is_gated_apart(WeightLease const& weights) const {
    return gate_ && !Linear::is_one_product(joined_, weights, {&*gate_, &expand_});
  }
  /// The layer that writes Saved::before; with the gate of its own product, or without a gate, it
  /// is the expansion.
  Linear const& before(bool apart) const { return gate_ && !apart ? *joined_ : expand_; }

  std::optional<Linear> gate_;
  Linear expand_;
  std::optional<Linear> joined_;  ///< gate and expansion as one
  Linear project_;
};

}  // namespace tessera::model::detail
