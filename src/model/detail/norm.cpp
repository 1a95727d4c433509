#include "detail/norm.hpp"

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

void Norm::backward(PassContext const& pass, BackwardLeases const& leases,
                    kernels::GradientTarget const& din, ConstTensorView dout, ConstTensorView in,
                    Saved const& saved) const {
  if (is_rms()) return backward_rms(pass, leases, din, {dout, in, saved.rstd});
  ArenaScope const scope(pass.arena);
  TensorView const workspace = pass.allocate_fp32(
      kernels::layer_norm_backward_workspace(pass.compute, in.dim(0), options_.width));
  kernels::layer_norm_backward(
      pass.compute, {din, leases.gradients[gamma_], leases.gradients[beta_], leases.mode()},
      {dout, in, saved.mean, saved.rstd, leases.weights[gamma_]}, workspace);
}

void Norm::backward_rms(PassContext const& pass, BackwardLeases const& leases,
                        kernels::GradientTarget const& din,
                        kernels::RmsNormBackwardInput const& from) const {
  ArenaScope const scope(pass.arena);
  TensorView const workspace = pass.allocate_fp32(
      kernels::rms_norm_backward_workspace(pass.compute, from.in.dim(0), options_.width));
  kernels::rms_norm_backward(pass.compute, rms_weights(options_, leases.weights[gamma_]),
                             {din, leases.gradient(gamma_)}, from, workspace);
}

}  // namespace tessera::model::detail
