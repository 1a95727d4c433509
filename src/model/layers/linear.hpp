#pragma once
/// Affine map of rows: out = in * W + b, and what adapts it. In fp8, operands are cast in the
/// activations' arena.

#include <optional>
#include <string>
#include <vector>

#include "layers/lora_layer.hpp"
#include "layers/pass.hpp"
#include "tessera/kernels/gemm/gemm.hpp"

namespace tessera::model::detail {

/// A matrix in fp8, and the reciprocal of its scale as factor.
struct Float8Matrix {
  ConstTensorView values;
  kernels::Float8Factor factor;
};
/// A matrix and its transpose; one may be empty.
struct Float8Operand {
  Float8Matrix rows, transposed;
};
/// The forms that products read.
struct Float8Forms {
  bool rows = false, transposed = false;
};

/// Casts @p in [R, C] with the scale of its values here and now. The copies stay in the arena.
/// @pre C is a multiple of 16
Float8Operand to_float8(PassContext const& pass, Float8 format, ConstTensorView in,
                        Float8Forms forms);

/// c (+)= a b^T + bias.
void multiply(PassContext const& pass, kernels::GradientTarget const& c, Float8Matrix const& a,
              Float8Matrix const& b, kernels::GemmEpilogue const& then = {});

/// The layout of W: [in, out] in GPT-2's Conv1D, [out, in] in torch.nn.Linear.
enum class WeightLayout { in_out, out_in };
enum class Bias { none, zeros };

struct LinearShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  WeightLayout layout = WeightLayout::in_out;
  Bias bias = Bias::zeros;
};

/// The rows that linear layers read: of one layer, or of several, which then share a cast to fp8.
struct LinearInput {
  LinearInput(ConstTensorView in) : values(in) {}  // NOLINT(google-explicit-constructor)
  LinearInput(TensorView in) : values(in) {}       // NOLINT(google-explicit-constructor)
  LinearInput(ConstTensorView in, Float8Matrix const& of_all) : values(in), cast(of_all) {}
  ConstTensorView values;  ///< [R, in]
  Float8Matrix cast{};  ///< cast of the values or of their transpose; empty: each layer casts them
};

class Linear {
 public:
  /// Adds "<name>.weight" (normal with @p stddev) and "<name>.bias" to @p unit.
  Linear(UnitSpec& unit, std::string const& name, LinearShape shape, double stddev);

  /// Layers of the same input as one: one product for all. None if their weights do not follow each
  /// other in a unit, or if they have biases.
  static std::optional<Linear> join(std::vector<Linear const*> const& parts);
  /// Whether the weights of joined layers are next to each other in memory, and none is adapted.
  static bool is_one_product(std::optional<Linear> const& joined, WeightLease const& weights,
                             std::vector<Linear const*> const& parts);

  /// Where the gradient of the input goes.
  struct InputGradient {
    InputGradient(TensorView to, ConstTensorView gelu = {})
        : out(to), gelu_input(gelu) {}  // NOLINT(google-explicit-constructor)
    InputGradient(kernels::GradientTarget const& to)
        : out(to.view), mode(to.mode) {}  // NOLINT(google-explicit-constructor)
    TensorView out;                       ///< [R, in]; empty: not wanted
    ConstTensorView gelu_input{};  ///< not empty: the layer's input is gelu_new of this [R, in],
                                   ///< whose gradient is wanted instead
    kernels::WriteMode mode = kernels::WriteMode::overwrite;  ///< add: not with gelu_input
  };

  /// The product is of the pass's dtype, or in fp8; its operands are converted to it. out [R, out]
  /// fp32 or of the pass's dtype, overwritten; in [R, in]. With gelu_input [R, out] that receives
  /// in * W + b, and out its gelu_new.
  void forward(PassContext const& pass, WeightLease const& weights, TensorView out,
               LinearInput const& in, TensorView gelu_input = {}) const;
  /// Weight and bias gradients as the lease says. din must not alias dout.
  void backward(PassContext const& pass, BackwardLeases const& leases, InputGradient din,
                ConstTensorView dout, LinearInput const& in) const;
  /// @p in for forward() of this layer and of others with the same input. An fp8 cast stays in the
  /// arena.
  LinearInput forward_input(PassContext const& pass, ConstTensorView in) const;
  /// Prepares @p in for backward() if this layer's weight trains.
  LinearInput backward_input(PassContext const& pass, BackwardLeases const& leases,
                             ConstTensorView in) const;

  LinearShape const& shape() const { return shape_; }
  std::string const& name() const { return name_; }
  /// Adds a low-rank part to the layer, with parameters in @p unit. Its passes have no GELU then,
  /// and with magnitudes its own parameters have no gradients.
  void adapt(UnitSpec& unit, LoraOptions const& options, LinearPlace place) {
    lora_.emplace(unit, name_, shape_.in, shape_.out, options, place);
  }
  bool is_adapted() const { return lora_.has_value(); }

 private:
  /// Weights and inputs in e4m3.
  void multiply_fp8(PassContext const& pass, WeightLease const& weights, TensorView out,
                    LinearInput const& in, kernels::GemmEpilogue const& then) const;
  void require_float8_sizes() const;
  void multiply_backward(PassContext const& pass, BackwardLeases const& leases,
                         InputGradient const& din, ConstTensorView dout, ConstTensorView in) const;
  /// Gradients in e5m2, weights and inputs in e4m3.
  void multiply_backward_fp8(PassContext const& pass, BackwardLeases const& leases,
                             InputGradient const& din, ConstTensorView dout,
                             LinearInput const& in) const;
  void add_bias_gradient(PassContext const& pass, BackwardLeases const& leases,
                         ConstTensorView dout) const;
  Float8Matrix float8_weight(PassContext const& pass, WeightLease const& weights,
                             WeightLayout wanted) const;
  /// The matrix of all joined layers, of which @p first is the first one's.
  ConstTensorView all_rows(ConstTensorView first) const;
  /// The weight in the dtype of products.
  ConstTensorView operand(PassContext const& pass, WeightLease const& weights) const;
  /// What the adapter adapts.
  AdaptedBase adapted(PassContext const& pass, WeightLease const& weights) const;
  /// Empty if it is frozen.
  TensorView weight_gradient(BackwardLeases const& leases) const;

  std::string name_;
  LinearShape shape_;
  std::optional<LoraLayer> lora_;
  std::size_t weight_;
  std::size_t weights_ = 1;  ///< parameters from weight_ on: more than one of joined layers
  std::size_t bias_ = 0;
};

}  // namespace tessera::model::detail
