#include "layers/linear.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

LayerCase make(WeightLayout layout, Bias bias) {
  UnitSpec unit;
  Linear const linear(unit, "linear", {.in = 5, .out = 7, .layout = layout, .bias = bias}, 0.1);
  return {unit,
          {2, 3, 5, 7},
          [linear](PassContext const& pass, WeightLease const& weights, TensorView out,
                   ConstTensorView in) { linear.forward(pass, weights, out, in); },
          [linear](PassContext const& pass, BackwardLeases const& leases, TensorView din,
                   ConstTensorView dout,
                   ConstTensorView in) { linear.backward(pass, leases, din, dout, in); }};
}

TEST(Linear, MultipliesRowsByEitherLayoutOfTheWeights) {
  for (auto const layout : {WeightLayout::in_out, WeightLayout::out_in})
    for (auto const bias : {Bias::none, Bias::zeros}) {
      LayerCase layer = make(layout, bias);
      auto const out = layer.output(), weight = layer.params().weight_values(0, 0);
      for (std::size_t row = 0; row < 6; ++row)
        for (std::size_t o = 0; o < 7; ++o) {
          double want = bias == Bias::none ? 0.0 : layer.params().weight_values(0, 1)[o];
          for (std::size_t i = 0; i < 5; ++i)
            want += static_cast<double>(layer.in()[row * 5 + i]) *
                    weight[layout == WeightLayout::in_out ? i * 7 + o : o * 5 + i];
          EXPECT_NEAR(out[row * 7 + o], want, 1e-6);
        }
    }
}

TEST(Linear, GradientsAreFiniteDifferences) {
  for (auto const layout : {WeightLayout::in_out, WeightLayout::out_in})
    for (auto const bias : {Bias::none, Bias::zeros}) make(layout, bias).expect_gradients();
}

TEST(Linear, WeightDecayAppliesToTheWeightsOnly) {
  UnitSpec unit;
  Linear const linear(unit, "linear", {.in = 5, .out = 7}, 0.1);
  ASSERT_EQ(unit.parameters.size(), 2u);
  EXPECT_EQ(unit.parameters[0].name, "linear.weight");
  EXPECT_TRUE(unit.parameters[0].decays);
  EXPECT_EQ(unit.parameters[1].name, "linear.bias");
  EXPECT_FALSE(unit.parameters[1].decays);
}

}  // namespace
}  // namespace tessera::model::detail::test
