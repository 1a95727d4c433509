#include "layers/norm.hpp"

namespace tessera::model::detail {
std::size_t add_gamma(UnitSpec& unit, std::string const& name, NormOptions const& options) {
  TESSERA_EXPECT(options.gamma_offset == 0.0 || options.gamma_offset == 1.0);
  return add_undecayed_parameter(unit, name + ".weight", {options.width},
                                 options.gamma_offset == 0.0 ? ones() : zeros());
}

kernels::RmsNormWeights rms_weights(NormOptions const& options, ConstTensorView gamma) {
  return {.gamma = gamma,
          .epsilon = static_cast<float>(options.epsilon),
          .gamma_offset = static_cast<float>(options.gamma_offset),
          .rounding = options.rounding};
}

Norm::Norm(UnitSpec& unit, std::string const& name, NormOptions const& options)
    : options_(options), gamma_(add_gamma(unit, name, options)) {
  if (!is_rms()) beta_ = add_undecayed_parameter(unit, name + ".bias", {options.width}, zeros());
}

Norm::Saved Norm::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                          ConstTensorView in) const {
  Saved const saved = allocate(pass, in.dim(0));
  ArenaScope const scope(pass.arena);
  in = pass.in_dtype(pass.stream_dtype, in);
  if (is_rms())
    kernels::rms_norm(pass.compute, rms_weights(options_, weights[gamma_]), {out, saved.rstd}, in);
  else
    kernels::layer_norm(pass.compute, weights_of(weights), {out, saved.mean, saved.rstd}, in);
  return saved;
}

Norm::Saved Norm::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                          Residual const& in) const {
  Saved const saved = allocate(pass, in.residual.dim(0));
  kernels::ResidualBranch const branch{in.residual, in.branch, in.drop};
  if (is_rms())
    kernels::residual_rms_norm(pass.compute, rms_weights(options_, weights[gamma_]), in.sum,
                               {out, saved.rstd}, branch);
  else
    kernels::residual_layer_norm(pass.compute, weights_of(weights), in.sum,
                                 {out, saved.mean, saved.rstd}, branch);
  return saved;
}

kernels::LayerNormWeights Norm::weights_of(WeightLease const& weights) const {
  return {weights[gamma_], weights[beta_], static_cast<float>(options_.epsilon)};
}

void Norm::backward(PassContext const& pass, BackwardLeases const& leases, InputGradient const& din,
                    ConstTensorView dout, ConstTensorView in, Saved const& saved) const {
  ArenaScope const conversions(pass.arena);
  in = pass.in_dtype(pass.stream_dtype, in);
  if (is_rms()) return backward_rms(pass, leases, din, {dout, in, saved.rstd});
  ArenaScope const scope(pass.arena);
  TensorView const workspace = pass.allocate_fp32(
      kernels::layer_norm_backward_workspace(pass.compute, in.dim(0), options_.width));
  auto const dgamma = leases.gradient_or_unread(pass, gamma_, options_.width),
             dbeta = leases.gradient_or_unread(pass, beta_, options_.width);
  kernels::layer_norm_backward(
      pass.compute, {din.stream, dgamma.view, dbeta.view, leases.mode(), din.copy},
      {dout, in, saved.mean, saved.rstd, leases.weights[gamma_]}, workspace);
}

void Norm::backward_rms(PassContext const& pass, BackwardLeases const& leases,
                        InputGradient const& din, kernels::RmsNormBackwardInput const& from) const {
  ArenaScope const scope(pass.arena);
  TensorView const workspace = pass.allocate_fp32(
      kernels::rms_norm_backward_workspace(pass.compute, from.in.dim(0), options_.width));
  kernels::rms_norm_backward(
      pass.compute, rms_weights(options_, leases.weights[gamma_]),
      {din.stream, leases.gradient_or_unread(pass, gamma_, options_.width), din.copy}, from,
      workspace);
}

namespace {

HeadNorm::Options with_width(HeadNorm::Options options) {
  options.norm.width = options.scope == HeadNormScope::all_heads
                           ? std::int64_t{options.heads} * options.head_dim
                           : options.head_dim;
  return options;
}

}  // namespace

HeadNorm::HeadNorm(UnitSpec& unit, std::string const& name, Options const& options)
    : options_(with_width(options)), gamma_(add_gamma(unit, name, options_.norm)) {}

kernels::HeadNormShape HeadNorm::shape(PassContext const& pass) const {
  return {.dtype = pass.dtype,
          .positions = pass.positions(),
          .heads = options_.scope == HeadNormScope::all_heads ? 1 : options_.heads,
          .width = options_.norm.width};
}

TensorView HeadNorm::forward(PassContext const& pass, WeightLease const& weights,
                             Operands const& operands) const {
  auto const shape = this->shape(pass);
  TensorView const rstd = pass.arena.allocate(Dtype::fp32, {shape.positions, shape.heads});
  ArenaScope const scope(pass.arena);
  auto const gamma = pass.operand(weights, gamma_);
  kernels::rms_norm_heads(pass.compute, rms_weights(options_.norm, gamma), shape,
                          {operands.out, rstd}, operands.in);
  return rstd;
}

void HeadNorm::backward(PassContext const& pass, BackwardLeases const& leases,
                        kernels::HeadsView const& gradient, kernels::ConstHeadsView const& in,
                        ConstTensorView rstd) const {
  ArenaScope const scope(pass.arena);
  auto const shape = this->shape(pass);
  TensorView const workspace = pass.allocate_fp32(kernels::rms_norm_backward_workspace(
      pass.compute, shape.positions * shape.heads, shape.width));
  auto const gamma = pass.operand(leases.weights, gamma_);
  kernels::rms_norm_heads_backward(pass.compute, rms_weights(options_.norm, gamma), shape,
                                   {gradient, leases.gradient_or_unread(pass, gamma_, shape.width)},
                                   {gradient, in, rstd}, workspace);
}

}  // namespace tessera::model::detail
