#include "layers/mlp.hpp"

namespace tessera::model::detail {
namespace {

Linear inner_layer(UnitSpec& unit, std::string const& name, MlpOptions const& options,
                   std::int64_t out) {
  return {unit,
          name,
          {.in = options.width, .out = out, .layout = options.layout, .bias = options.bias},
          options.stddev};
}

}  // namespace

Mlp::Mlp(UnitSpec& unit, std::string const& name, MlpOptions const& options)
    : options_(options),
      gate_(options.kind != MlpKind::gated
                ? std::nullopt
                : std::optional(
                      inner_layer(unit, name + "." + options.gate_name, options, options.inner))),
      expand_(
          inner_layer(unit, name + "." + options.expand_name, options,
                      options.kind == MlpKind::gated_fused ? 2 * options.inner : options.inner)),
      joined_(gate_ ? Linear::join({&*gate_, &expand_}) : std::nullopt),
      project_(unit, name + "." + options.project_name,
               {.in = options.inner,
                .out = options.width,
                .layout = options.layout,
                .bias = options.bias},
               options.projection_stddev) {}

Mlp::Saved Mlp::expand(PassContext const& pass, WeightLease const& weights,
                       ConstTensorView in) const {
  std::int64_t const rows = pass.positions();
  bool const apart = is_gated_apart(weights);
  Linear const& expand = before(apart);
  Saved const saved{.gate = apart ? pass.allocate(rows, options_.inner) : TensorView{},
                    .before = pass.allocate(rows, expand.shape().out),
                    .activated = pass.shared.activated.empty() ? pass.allocate(rows, options_.inner)
                                                               : pass.shared.activated};
  // what is computed again must be what was computed at first, not what an epilogue rounds
  if (is_fused_gelu() && pass.recompute != Recompute::light) {
    expand_.forward(pass, weights, saved.activated, in, saved.before);
    return saved;
  }
  {
    ArenaScope const scope(pass.arena);
    LinearInput const of_both = (apart ? *gate_ : expand).forward_input(pass, in);
    if (apart) gate_->forward(pass, weights, saved.gate, of_both);
    expand.forward(pass, weights, saved.before, of_both);
  }
  activate(pass, saved);
  return saved;
}

void Mlp::activate(PassContext const& pass, Saved const& saved) const {
  if (options_.kind == MlpKind::plain)
    kernels::activate(pass.compute, options_.activation, saved.activated, saved.before);
  else
    kernels::gated_activate(
        pass.compute, options_.activation, gated_shape(pass),
        {saved.activated.data(), options_.inner},
        gate_and_up<kernels::GatedInput, ConstTensorView>(saved.gate, saved.before));
}

void Mlp::project(PassContext const& pass, WeightLease const& weights, TensorView out,
                  Saved const& saved) const {
  project_.forward(pass, weights, out, saved.activated);
}

void Mlp::backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                   ConstTensorView dout, ConstTensorView in, Saved const& saved) const {
  if (options_.kind != MlpKind::plain) return backward_gated(pass, leases, din, dout, in, saved);
  ArenaScope const scope(pass.arena);
  TensorView const dinner = pass.allocate(pass.positions(), options_.inner);
  if (is_fused_gelu()) {
    project_.backward(pass, leases, {dinner, saved.before}, dout, saved.activated);
  } else {
    project_.backward(pass, leases, dinner, dout, saved.activated);
    kernels::activate_backward(pass.compute, options_.activation, dinner, dinner, saved.before);
  }
  expand_.backward(pass, leases, din, dinner, in);
}

void Mlp::backward_gated(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                         ConstTensorView dout, ConstTensorView in, Saved const& saved) const {
  ArenaScope const scope(pass.arena);
  std::int64_t const rows = pass.positions();
  TensorView const dactivated = pass.allocate(rows, options_.inner);
  bool const apart = !saved.gate.empty();
  Linear const& expand = before(apart);
  TensorView const dgate = apart ? pass.allocate(rows, options_.inner) : TensorView{};
  TensorView const dbefore = pass.allocate(rows, expand.shape().out);
  project_.backward(pass, leases, dactivated, dout, saved.activated);
  kernels::gated_activate_backward(
      pass.compute, options_.activation, gated_shape(pass),
      gate_and_up<kernels::GatedGradients, TensorView>(dgate, dbefore),
      {dactivated.data(), options_.inner},
      gate_and_up<kernels::GatedInput, ConstTensorView>(saved.gate, saved.before));
  LinearInput const of_both = expand.backward_input(pass, leases, in);
  expand.backward(pass, leases, din, dbefore, of_both);
  if (apart)
    gate_->backward(pass, leases, kernels::GradientTarget{din, kernels::WriteMode::add}, dgate,
                    of_both);
}

}  // namespace tessera::model::detail
