#include "detail/norm.hpp"

namespace tessera::model::detail {

LayerNorm::LayerNorm(UnitSpec& unit, std::string const& name, std::int64_t width, double epsilon)
    : width_(width),
      epsilon_(static_cast<float>(epsilon)),
      gamma_(add_undecayed_parameter(unit, name + ".weight", {width}, ones())),
      beta_(add_undecayed_parameter(unit, name + ".bias", {width}, zeros())) {}

LayerNorm::Saved LayerNorm::forward(PassContext const& pass, WeightLease const& weights,
                                    TensorView out, ConstTensorView in) const {
  Saved const saved = allocate(pass, in.dim(0));
  kernels::layer_norm(pass.compute, weights_of(weights), {out, saved.mean, saved.rstd}, in);
  return saved;
}

LayerNorm::Saved LayerNorm::forward(PassContext const& pass, WeightLease const& weights,
                                    TensorView out, Residual const& in) const {
  Saved const saved = allocate(pass, in.residual.dim(0));
  kernels::residual_layer_norm(pass.compute, weights_of(weights), in.sum,
                               {out, saved.mean, saved.rstd}, {in.residual, in.branch, in.drop});
  return saved;
}

kernels::LayerNormWeights LayerNorm::weights_of(WeightLease const& weights) const {
  return {weights[gamma_], weights[beta_], epsilon_};
}

void LayerNorm::backward(PassContext const& pass, BackwardLeases const& leases,
                         kernels::GradientTarget const& din, ConstTensorView dout,
                         ConstTensorView in, Saved const& saved) const {
  ArenaScope const scope(pass.arena);
  TensorView const workspace =
      pass.allocate_fp32(kernels::layer_norm_backward_workspace(pass.compute, in.dim(0), width_));
  kernels::layer_norm_backward(
      pass.compute, {din, leases.gradients[gamma_], leases.gradients[beta_], leases.mode()},
      {dout, in, saved.mean, saved.rstd, leases.weights[gamma_]}, workspace);
}

}  // namespace tessera::model::detail
