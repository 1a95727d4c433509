#include "layers/linear.hpp"

#include "layers/float8_scales.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/gemm/float8.hpp"
#include "tessera/kernels/gemm/gemm.hpp"

namespace tessera::model::detail {
namespace {

Float8Operand cast_to_float8(PassContext const& pass, Float8 format, ConstTensorView in,
                             kernels::Float8Scale const& scale, Float8Forms forms) {
  std::int64_t const rows = in.dim(0), columns = in.dim(1);
  kernels::Float8Copies copies;
  if (forms.rows) copies.rows = pass.arena.allocate(Dtype::uint8, {rows, columns});
  if (forms.transposed)
    copies.transposed = pass.arena.allocate(Dtype::uint8, {columns, kernels::float8_padded(rows)});
  kernels::float8_cast(pass.compute, format, copies, in, scale);
  kernels::Float8Factor const factor{format, scale.reciprocal()};
  return {{copies.rows, factor}, {copies.transposed, factor}};
}

}  // namespace

Linear::Linear(UnitSpec& unit, std::string const& name, LinearShape shape, double stddev)
    : name_(name), shape_(shape) {
  bool const in_out = shape.layout == WeightLayout::in_out;
  weight_ = marked_for_products(
      unit, add_parameter(unit, name + ".weight",
                          {in_out ? shape.in : shape.out, in_out ? shape.out : shape.in},
                          normal(stddev)));
  if (shape.bias == Bias::zeros)
    bias_ = marked_for_products(
        unit, add_undecayed_parameter(unit, name + ".bias", {shape.out}, zeros()));
}

std::optional<Linear> Linear::join(std::vector<Linear const*> const& parts) {
  Linear out = *parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    Linear const& part = *parts[i];
    if (part.weight_ != out.weight_ + i) return std::nullopt;
    out.shape_.out += part.shape_.out;
    out.name_ += concat(", ", part.name_);
  }
  out.weights_ = parts.size();
  bool const rows_follow =
      out.shape_.layout == WeightLayout::out_in && out.shape_.bias == Bias::none;
  return rows_follow ? std::optional(std::move(out)) : std::nullopt;
}

bool Linear::is_one_product(std::optional<Linear> const& joined, WeightLease const& weights,
                            std::vector<Linear const*> const& parts) {
  if (!joined) return false;
  for (Linear const* const part : parts)
    if (part->is_adapted()) return false;
  for (std::size_t i = joined->weight_; i + 1 < joined->weight_ + joined->weights_; ++i)
    if (static_cast<std::byte const*>(weights[i].data()) + weights[i].bytes() !=
        weights[i + 1].data())
      return false;
  return true;
}

ConstTensorView Linear::all_rows(ConstTensorView first) const {
  if (weights_ == 1) return first;
  return {first.data(), first.dtype(), {shape_.out, shape_.in}};
}

ConstTensorView Linear::operand(PassContext const& pass, WeightLease const& weights) const {
  return pass.in_dtype(pass.dtype, all_rows(pass.copy_or_weight(weights, weight_)));
}

AdaptedBase Linear::adapted(PassContext const& pass, WeightLease const& weights) const {
  return {.weight = all_rows(pass.copy_or_weight(weights, weight_)),
          .bias = shape_.bias == Bias::none ? ConstTensorView{} : weights[bias_],
          .transposed = shape_.layout == WeightLayout::in_out};
}

TensorView Linear::weight_gradient(BackwardLeases const& leases) const {
  TensorView const first = leases.gradients[weight_];
  if (weights_ == 1) return first;
  TensorView const last = leases.gradients[weight_ + weights_ - 1];
  TESSERA_EXPECT(first.empty() == last.empty(), "a part of ", name_, " is frozen");
  if (first.empty()) return first;
  TensorView const all(first.data(), first.dtype(), {shape_.out, shape_.in});
  TESSERA_EXPECT(static_cast<std::byte*>(last.data()) + last.bytes() ==
                     static_cast<std::byte*>(all.data()) + all.bytes(),
                 "gradients of ", name_, " are not next to each other, but the weights are");
  return all;
}

void Linear::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                     LinearInput const& in, TensorView gelu_input) const {
  TESSERA_EXPECT(!lora_ || gelu_input.empty(), name_);
  ArenaScope const scope(pass.arena);
  ConstTensorView const bias =
      shape_.bias == Bias::none ? ConstTensorView{} : pass.copy_or_weight(weights, bias_);
  // An fp8 product takes a 16-bit bias only.
  Dtype const bias_dtype = pass.fp8 ? pass.dtype : out.dtype();
  kernels::GemmEpilogue const then{.bias = pass.rounded(bias_dtype, bias),
                                   .gelu_input = gelu_input};
  if (pass.fp8)
    multiply_fp8(pass, weights, out, in, then);
  else
    kernels::gemm(pass.compute, {.transpose_b = shape_.layout == WeightLayout::out_in}, out,
                  pass.in_dtype(pass.dtype, in.values), operand(pass, weights), then);
  if (lora_ && pass.adapters_on)
    lora_->add_output(pass, weights, out, in.values, adapted(pass, weights));
}

LinearInput Linear::forward_input(PassContext const& pass, ConstTensorView in) const {
  if (!pass.fp8) return in;
  require_float8_sizes();
  return {in, to_float8(pass, Float8::e4m3, in, {.rows = true}).rows};
}

LinearInput Linear::backward_input(PassContext const& pass, BackwardLeases const& leases,
                                   ConstTensorView in) const {
  if (!pass.fp8 || leases.gradients[weight_].empty()) return in;
  return {in, to_float8(pass, Float8::e4m3, in, {.transposed = true}).transposed};
}

void Linear::require_float8_sizes() const {
  constexpr auto multiple = kernels::float8_multiple;
  TESSERA_VALIDATE(shape_.in % multiple == 0 && shape_.out % multiple == 0, ConfigError,
                   "--fp8: ", name_, " has ", shape_.in, " inputs and ", shape_.out,
                   " outputs, but fp8 products need multiples of ", multiple,
                   "; leave fp8 out, or change the sizes of the model");
}

void Linear::multiply_fp8(PassContext const& pass, WeightLease const& weights, TensorView out,
                          LinearInput const& in, kernels::GemmEpilogue const& then) const {
  require_float8_sizes();
  auto const x = in.cast.values.empty() ? forward_input(pass, in.values).cast : in.cast;
  multiply(pass, {out}, x, float8_weight(pass, weights, WeightLayout::out_in), then);
}

void Linear::backward(PassContext const& pass, BackwardLeases const& leases, InputGradient din,
                      ConstTensorView dout, LinearInput const& in) const {
  ArenaScope const conversions(pass.arena);
  TESSERA_EXPECT(!lora_ || din.gelu_input.empty(), name_);
  ConstTensorView x = in.values;
  if (!pass.fp8) {
    dout = pass.in_dtype(pass.dtype, dout);
    x = pass.in_dtype(pass.dtype, x);
  }
  AdaptedGradients gradients{dout, {}, dout};
  if (lora_) {
    TESSERA_EXPECT(!lora_->has_magnitudes() || weight_gradient(leases).empty(), name_);
    gradients = lora_->split(pass, leases, dout, x, adapted(pass, leases.weights));
  }
  if (pass.fp8)
    multiply_backward_fp8(pass, leases, din, gradients.base, in);
  else
    multiply_backward(pass, leases, din, gradients.base, x);
  if (lora_) lora_->backward(pass, leases, din.out, gradients, x, adapted(pass, leases.weights));
}

void Linear::multiply_backward(PassContext const& pass, BackwardLeases const& leases,
                               InputGradient const& din, ConstTensorView dout,
                               ConstTensorView in) const {
  bool const in_out = shape_.layout == WeightLayout::in_out;
  if (TensorView const gradient = weight_gradient(leases); !gradient.empty())
    kernels::gemm(pass.compute, {.transpose_a = true, .accumulate = leases.gradients.accumulate()},
                  gradient, in_out ? in : dout, in_out ? dout : in);
  add_bias_gradient(pass, leases, dout);
  if (din.out.empty()) return;
  kernels::gemm(pass.compute,
                {.transpose_b = in_out, .accumulate = din.mode == kernels::WriteMode::add}, din.out,
                dout, operand(pass, leases.weights), {.gelu_slope_at = din.gelu_input});
}

void Linear::add_bias_gradient(PassContext const& pass, BackwardLeases const& leases,
                               ConstTensorView dout) const {
  if (shape_.bias == Bias::none || leases.gradients[bias_].empty()) return;
  ArenaScope const scope(pass.arena);
  TensorView const workspace =
      pass.allocate_fp32(kernels::bias_gradient_workspace(pass.compute, dout.dim(0), shape_.out));
  kernels::bias_gradient(pass.compute, leases.gradient(bias_), dout, workspace);
}

void Linear::multiply_backward_fp8(PassContext const& pass, BackwardLeases const& leases,
                                   InputGradient const& din, ConstTensorView dout,
                                   LinearInput const& in) const {
  bool const trains = !leases.gradients[weight_].empty(), has_input = !din.out.empty();
  add_bias_gradient(pass, leases, dout);
  if (!trains && !has_input) return;
  auto const dy = to_float8(pass, Float8::e5m2, dout, {.rows = has_input, .transposed = trains});
  if (trains) {
    ArenaScope const scope(pass.arena);
    auto const x = in.cast.values.empty() ? backward_input(pass, leases, in.values).cast : in.cast;
    bool const in_out = shape_.layout == WeightLayout::in_out;
    multiply(pass, {weight_gradient(leases), leases.mode()}, in_out ? x : dy.transposed,
             in_out ? dy.transposed : x);
  }
  if (has_input)
    multiply(pass, {din.out, din.mode}, dy.rows,
             float8_weight(pass, leases.weights, WeightLayout::in_out),
             {.gelu_slope_at = din.gelu_input});
}

Float8Matrix Linear::float8_weight(PassContext const& pass, WeightLease const& weights,
                                   WeightLayout wanted) const {
  bool const as_stored = shape_.layout == wanted;
  ConstTensorView const weight = all_rows(weights[weight_]);
  auto const scale = pass.float8_scales
                         ? pass.float8_scales->of(pass, {name_, weight, weights.version(weight_)})
                         : float8_scale(pass, Float8::e4m3, weight);
  auto const w = cast_to_float8(pass, Float8::e4m3, weight, scale,
                                {.rows = as_stored, .transposed = !as_stored});
  return as_stored ? w.rows : w.transposed;
}

Float8Operand to_float8(PassContext const& pass, Float8 format, ConstTensorView in,
                        Float8Forms forms) {
  return cast_to_float8(pass, format, in, float8_scale(pass, format, in), forms);
}

void multiply(PassContext const& pass, kernels::GradientTarget const& c, Float8Matrix const& a,
              Float8Matrix const& b, kernels::GemmEpilogue const& then) {
  kernels::gemm(pass.compute,
                {.transpose_b = true,
                 .accumulate = c.mode == kernels::WriteMode::add,
                 .fp8_a = a.factor,
                 .fp8_b = b.factor},
                c.view, a.values, b.values, then);
}

}  // namespace tessera::model::detail
