#include "layers/head_norm.hpp"

namespace tessera::model::detail {
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
  auto const gamma = pass.in_dtype(pass.dtype, weights[gamma_]);
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
  auto const gamma = pass.in_dtype(pass.dtype, leases.weights[gamma_]);
  kernels::rms_norm_heads_backward(pass.compute, rms_weights(options_.norm, gamma), shape,
                                   {gradient, leases.gradient_or_unread(pass, gamma_, shape.width)},
                                   {gradient, in, rstd}, workspace);
}

}  // namespace tessera::model::detail
