#include "detail/mlp.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

TEST(Mlp, GradientsAreFiniteDifferences) {
  for (auto const layout : {WeightLayout::in_out, WeightLayout::out_in}) {
    UnitSpec unit;
    Mlp const mlp(unit, "mlp", {.width = 6, .inner = 10, .layout = layout});
    LayerCase(
        unit, {2, 3, 6, 6},
        [mlp](PassContext const& pass, WeightLease const& weights, TensorView out,
              ConstTensorView in) {
          mlp.project(pass, weights, out, mlp.expand(pass, weights, in));
        },
        [mlp](PassContext const& pass, BackwardLeases const& leases, TensorView din,
              ConstTensorView dout, ConstTensorView in) {
          auto const saved = mlp.expand(pass, leases.weights, in);
          mlp.backward(pass, leases, din, dout, in, saved);
        })
        .expect_gradients();
  }
}

}  // namespace
}  // namespace tessera::model::detail::test
