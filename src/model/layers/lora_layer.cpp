#include "layers/lora_layer.hpp"

#include <cmath>

#include "tessera/kernels/elementwise/column_scaling.hpp"
#include "tessera/kernels/gemm/gemm.hpp"

namespace tessera::model::detail {
namespace {

std::size_t add_adapter(UnitSpec& unit, std::string const& name, std::vector<std::int64_t> shape,
                        Initializer init) {
  std::size_t const at = add_parameter(unit, adapter_prefix + name, std::move(shape), init);
  unit.parameters[at].is_adapter = true;
  return marked_for_products(unit, at);
}

/// nn.Linear's kaiming_uniform_(a = sqrt(5)).
Initializer uniform(std::int64_t inputs) {
  return {.kind = Initializer::Kind::uniform,
          .stddev = 0.0,
          .bound = 1.0 / std::sqrt(static_cast<double>(inputs))};
}

}  // namespace

LoraLayer::LoraLayer(UnitSpec& unit, std::string const& name, std::int64_t in, std::int64_t out,
                     LoraOptions const& options, LinearPlace place)
    : in_(in),
      out_(out),
      rank_(options.rank),
      scale_(static_cast<float>(options.scale())),
      dropout_(options.dropout),
      place_(place),
      a_(add_adapter(
          unit, name + ".lora_A.weight", {options.rank, in},
          options.init == LoraInit::gaussian ? normal(1.0 / options.rank) : uniform(in))),
      b_(add_adapter(unit, name + ".lora_B.weight", {out, options.rank},
                     options.init == LoraInit::nonzero ? uniform(options.rank) : zeros())) {
  // a run replaces these values by the norms of the rows of V
  if (options.magnitudes) magnitudes_ = add_adapter(unit, name + magnitude_suffix, {out}, ones());
}

Dropout LoraLayer::dropout(PassContext const& pass) const {
  auto const site = static_cast<int>(DropoutSite::first_adapter) + place_.index;
  return pass.dropout(dropout_, place_.block, static_cast<DropoutSite>(site), pass.sequence * in_);
}

ConstTensorView LoraLayer::dropped(PassContext const& pass, ConstTensorView in) const {
  in = pass.in_dtype(pass.dtype, in);
  auto const drop = dropout(pass);
  if (drop.p == 0.0f) return in;
  TensorView const out = pass.allocate(in.dim(0), in.dim(1));
  kernels::dropout(pass.compute, out, in, drop);
  return out;
}

TensorView LoraLayer::reduce(PassContext const& pass, WeightLease const& weights,
                             ConstTensorView in) const {
  TensorView const out = pass.allocate(in.dim(0), rank_);
  kernels::gemm(pass.compute, {.transpose_b = true, .alpha = scale_}, out, in,
                pass.operand(weights, a_));
  return out;
}

void LoraLayer::add_low_rank(PassContext const& pass, WeightLease const& weights, TensorView out,
                             ConstTensorView in) const {
  ArenaScope const scope(pass.arena);
  kernels::gemm(pass.compute, {.transpose_b = true, .accumulate = true}, out,
                reduce(pass, weights, in), pass.operand(weights, b_));
}

void LoraLayer::multiply(PassContext const& pass, WeightLease const& weights, TensorView out,
                         ConstTensorView in, AdaptedBase const& base) const {
  ArenaScope const scope(pass.arena);
  kernels::gemm(pass.compute, {.transpose_b = !base.transposed}, out, in,
                pass.in_dtype(pass.dtype, base.weight));
  add_low_rank(pass, weights, out, in);
}

/// The squared norms need W A^T and A A^T, but not V.
LoraLayer::Factors LoraLayer::factors(PassContext const& pass, WeightLease const& weights,
                                      AdaptedBase const& base) const {
  Factors const out{pass.allocate_fp32(out_), pass.allocate_fp32(out_)};
  ArenaScope const scope(pass.arena);
  ConstTensorView const w = pass.in_dtype(pass.dtype, base.weight), a = pass.operand(weights, a_),
                        b = pass.operand(weights, b_);
  TensorView const squared_a = pass.allocate(rank_, rank_);
  TensorView const products = pass.arena.allocate(Dtype::fp32, {out_, rank_});
  kernels::gemm(pass.compute, {.transpose_b = true}, squared_a, a, a);
  kernels::gemm(pass.compute,
                {.transpose_a = base.transposed, .transpose_b = true, .alpha = 2.0f * scale_},
                products, w, a);
  kernels::gemm(pass.compute, {.accumulate = true, .alpha = scale_ * scale_}, products, b,
                squared_a);
  kernels::adapted_row_factors(pass.compute, out.values, out.inverse_norms,
                               pass.in_dtype(Dtype::fp32, weights[*magnitudes_]),
                               {.weight = w,
                                .b = pass.in_dtype(Dtype::fp32, weights[b_]),
                                .products = products,
                                .transposed = base.transposed});
  return out;
}

void LoraLayer::add_output(PassContext const& pass, WeightLease const& weights, TensorView out,
                           ConstTensorView in, AdaptedBase const& base) const {
  ArenaScope const scope(pass.arena);
  ConstTensorView const input = dropped(pass, in);
  add_low_rank(pass, weights, out, input);
  if (!magnitudes_) return;
  auto const g = factors(pass, weights, base);
  if (dropout(pass).p == 0.0f) {  // out - b is V x
    kernels::add_scaled_columns(pass.compute, out, out, g.values,
                                pass.in_dtype(Dtype::fp32, base.bias));
    return;
  }
  TensorView const product = pass.arena.allocate(out.dtype(), {out.dim(0), out_});
  multiply(pass, weights, product, input, base);
  kernels::add_scaled_columns(pass.compute, out, product, g.values);
}

AdaptedGradients LoraLayer::split(PassContext const& pass, BackwardLeases const& leases,
                                  ConstTensorView dout, ConstTensorView in,
                                  AdaptedBase const& base) const {
  if (!magnitudes_) return {dout, {}, dout};
  dout = pass.in_dtype(pass.dtype, dout);
  std::int64_t const rows = dout.dim(0);
  bool const drops = dropout(pass).p != 0.0f;
  TensorView const scaled = pass.allocate(rows, out_);
  TensorView const through_dropout = drops ? pass.allocate(rows, out_) : TensorView{};
  ArenaScope const scope(pass.arena);
  auto const g = factors(pass, leases.weights, base);
  kernels::scale_columns(pass.compute, scaled, dout, g.values);
  if (drops) kernels::scale_columns(pass.compute, through_dropout, dout, g.values, -1.0f);
  if (!leases.gradients[*magnitudes_].empty()) {
    TensorView const products = pass.arena.allocate(Dtype::fp32, {rows, out_});
    multiply(pass, leases.weights, products, dropped(pass, in), base);
    kernels::multiply_columns(pass.compute, products, dout, g.inverse_norms);
    kernels::bias_gradient(
        pass.compute, leases.gradient(*magnitudes_), products,
        pass.allocate_fp32(kernels::bias_gradient_workspace(pass.compute, rows, out_)));
  }
  if (drops) return {dout, through_dropout, scaled};
  return {scaled, {}, scaled};
}

void LoraLayer::backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                         AdaptedGradients const& gradients, ConstTensorView in,
                         AdaptedBase const& base) const {
  ArenaScope const scope(pass.arena);
  ConstTensorView const dout = pass.in_dtype(pass.dtype, gradients.low_rank);
  bool const adds = leases.gradients.accumulate();
  ConstTensorView const input = dropped(pass, in);
  if (!leases.gradients[b_].empty())
    kernels::gemm(pass.compute, {.transpose_a = true, .accumulate = adds}, leases.gradients[b_],
                  dout, reduce(pass, leases.weights, input));
  TensorView const dreduced = pass.allocate(dout.dim(0), rank_);
  kernels::gemm(pass.compute, {.alpha = scale_}, dreduced, dout, pass.operand(leases.weights, b_));
  if (!leases.gradients[a_].empty())
    kernels::gemm(pass.compute, {.transpose_a = true, .accumulate = adds}, leases.gradients[a_],
                  dreduced, input);
  if (din.empty()) return;
  ConstTensorView const a = pass.operand(leases.weights, a_);
  auto const drop = dropout(pass);
  if (drop.p == 0.0f) {
    kernels::gemm(pass.compute, {.accumulate = true}, din, dreduced, a);
    return;
  }
  TensorView const through = pass.allocate(din.dim(0), din.dim(1));
  kernels::gemm(pass.compute, {}, through, dreduced, a);
  if (!gradients.dropped.empty())
    kernels::gemm(pass.compute, {.transpose_b = base.transposed, .accumulate = true}, through,
                  gradients.dropped, pass.in_dtype(pass.dtype, base.weight));
  kernels::dropout(pass.compute, through, through, drop);
  kernels::add(pass.compute, din, through);
}

}  // namespace tessera::model::detail
