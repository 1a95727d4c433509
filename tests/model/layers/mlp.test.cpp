#include "layers/mlp.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

void expect_gradients(MlpOptions const& options) {
  UnitSpec unit;
  Mlp const mlp(unit, "mlp", options);
  LayerCase(
      unit, {2, 3, 6, 6},
      [mlp](PassContext const& pass, WeightLease const& weights, TensorView out,
            ConstTensorView in) { mlp.project(pass, weights, out, mlp.expand(pass, weights, in)); },
      [mlp](PassContext const& pass, BackwardLeases const& leases, TensorView din,
            ConstTensorView dout, ConstTensorView in) {
        auto const saved = mlp.expand(pass, leases.weights, in);
        mlp.backward(pass, leases, din, dout, in, saved);
      })
      .expect_gradients();
}

TEST(Mlp, GradientsAreFiniteDifferences) {
  for (auto const layout : {WeightLayout::in_out, WeightLayout::out_in})
    expect_gradients({.width = 6, .inner = 10, .layout = layout});
}

TEST(Mlp, GradientsOfOtherActivationsAndGates) {
  using kernels::Activation;
  for (auto const kind : {MlpKind::plain, MlpKind::gated, MlpKind::gated_fused})
    for (auto const activation : {Activation::silu, Activation::gelu, Activation::gelu_new})
      for (auto const bias : {Bias::none, Bias::zeros})
        expect_gradients({.width = 6,
                          .inner = 10,
                          .kind = kind,
                          .activation = activation,
                          .layout = WeightLayout::out_in,
                          .bias = bias});
}

TEST(Mlp, NamesItsMatrices) {
  UnitSpec unit;
  Mlp const gated(unit, "mlp",
                  {.width = 6,
                   .inner = 10,
                   .kind = MlpKind::gated,
                   .layout = WeightLayout::out_in,
                   .bias = Bias::none,
                   .gate_name = "gate",
                   .expand_name = "up",
                   .project_name = "down"});
  ASSERT_EQ(unit.parameters.size(), 3u);
  EXPECT_EQ(unit.parameters[0].name, "mlp.gate.weight");
  EXPECT_EQ(unit.parameters[1].shape, (std::vector<std::int64_t>{10, 6}));
  EXPECT_EQ(unit.parameters[2].shape, (std::vector<std::int64_t>{6, 10}));
}

}  // namespace
}  // namespace tessera::model::detail::test
