#include "layers/lora_layer.hpp"

#include <cmath>

#include "tessera/kernels/gemm/gemm.hpp"

namespace tessera::model::detail {
namespace {

std::size_t add_matrix(UnitSpec& unit, std::string const& name, std::int64_t rows,
                       std::int64_t columns, Initializer init) {
  std::size_t const at = add_parameter(unit, adapter_prefix + name, {rows, columns}, init);
  unit.parameters[at].is_adapter = true;
  return marked_for_products(unit, at);
}

Initializer uniform(double bound) {
  return {.kind = Initializer::Kind::uniform, .stddev = 0.0, .bound = bound};
}

}  // namespace

LoraLayer::LoraLayer(UnitSpec& unit, std::string const& name, std::int64_t in, std::int64_t out,
                     LoraOptions const& options, LinearPlace place)
    : in_(in),
      rank_(options.rank),
      scale_(static_cast<float>(options.scale())),
      dropout_(options.dropout),
      place_(place),
      a_(add_matrix(unit, name + ".lora_A.weight", options.rank, in,
                    uniform(1.0 / std::sqrt(static_cast<double>(in))))),
      b_(add_matrix(unit, name + ".lora_B.weight", out, options.rank, zeros())) {}

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

void LoraLayer::add_output(PassContext const& pass, WeightLease const& weights, TensorView out,
                           ConstTensorView in) const {
  ArenaScope const scope(pass.arena);
  TensorView const reduced = reduce(pass, weights, dropped(pass, in));
  kernels::gemm(pass.compute, {.transpose_b = true, .accumulate = true}, out, reduced,
                pass.operand(weights, b_));
}

void LoraLayer::backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                         ConstTensorView dout, ConstTensorView in) const {
  ArenaScope const scope(pass.arena);
  dout = pass.in_dtype(pass.dtype, dout);
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
  kernels::dropout(pass.compute, through, through, drop);
  kernels::add(pass.compute, din, through);
}

}  // namespace tessera::model::detail
