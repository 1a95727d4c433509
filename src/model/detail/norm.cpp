#include "detail/norm.hpp"

namespace tessera::model::detail {

Norm::Norm(UnitSpec& unit, std::string const& name, NormOptions const& options)
    : options_(options),
      gamma_(add_undecayed_parameter(unit, name + ".weight", {options.width}, ones())),
      beta_(add_undecayed_parameter(unit, name + ".bias", {options.width}, zeros())) {}

Norm::Saved Norm::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                          ConstTensorView in) const {
  Saved const saved = allocate(pass, in.dim(0));
  kernels::layer_norm(pass.compute, weights_of(weights), {out, saved.mean, saved.rstd}, in);
  return saved;
}

Norm::Saved Norm::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                          Residual const& in) const {
  Saved const saved = allocate(pass, in.residual.dim(0));
  kernels::residual_layer_norm(pass.compute, weights_of(weights), in.sum,
                               {out, saved.mean, saved.rstd}, {in.residual, in.branch, in.drop});
  return saved;
}

kernels::LayerNormWeights Norm::weights_of(WeightLease const& weights) const {
  return {weights[gamma_], weights[beta_], static_cast<float>(options_.epsilon)};
}

void Norm::backward(PassContext const& pass, BackwardLeases const& leases,
                    kernels::GradientTarget const& din, ConstTensorView dout, ConstTensorView in,
                    Saved const& saved) const {
  ArenaScope const scope(pass.arena);
  TensorView const workspace = pass.allocate_fp32(
      kernels::layer_norm_backward_workspace(pass.compute, in.dim(0), options_.width));
  kernels::layer_norm_backward(
      pass.compute, {din, leases.gradients[gamma_], leases.gradients[beta_], leases.mode()},
      {dout, in, saved.mean, saved.rstd, leases.weights[gamma_]}, workspace);
}

}  // namespace tessera::model::detail
