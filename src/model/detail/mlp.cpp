#include "detail/mlp.hpp"

namespace tessera::model::detail {

Mlp::Mlp(UnitSpec& unit, std::string const& name, MlpOptions const& options)
    : expand_(unit, name + "." + options.expand_name,
              {.in = options.width,
               .out = options.inner,
               .layout = options.layout,
               .bias = options.bias},
              options.stddev),
      project_(unit, name + "." + options.project_name,
               {.in = options.inner,
                .out = options.width,
                .layout = options.layout,
                .bias = options.bias},
               options.projection_stddev) {}

Mlp::Saved Mlp::expand(PassContext const& pass, WeightLease const& weights,
                       ConstTensorView in) const {
  std::int64_t const rows = pass.positions(), inner = expand_.shape().out;
  Saved const saved{.before = pass.allocate(rows, inner), .activated = pass.allocate(rows, inner)};
  expand_.forward(pass, weights, saved.activated, in, saved.before);
  return saved;
}

void Mlp::project(PassContext const& pass, WeightLease const& weights, TensorView out,
                  Saved const& saved) const {
  project_.forward(pass, weights, out, saved.activated);
}

void Mlp::backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                   ConstTensorView dout, ConstTensorView in, Saved const& saved) const {
  ArenaScope const scope(pass.arena);
  TensorView const dinner = pass.allocate(pass.positions(), expand_.shape().out);
  project_.backward(pass, leases, {dinner, saved.before}, dout, saved.activated);
  expand_.backward(pass, leases, din, dinner, in);
}

}  // namespace tessera::model::detail
