#include "layers/mlp.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

void expect_gradients(MlpOptions const& options) {
  UnitSpec unit;
  Mlp const mlp(unit, "mlp", options);
  LayerCase(
      unit, {2, 3, options.width, options.width},
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

/// Gate and expansion fill cache lines, so that they are next to each other.
TEST(Mlp, GateAndExpansionNextToEachOtherAreOneProduct) {
  UnitSpec unit;
  MlpOptions const options{.width = 16,
                           .inner = 7,
                           .kind = MlpKind::gated,
                           .activation = kernels::Activation::silu,
                           .layout = WeightLayout::out_in,
                           .bias = Bias::none};
  expect_gradients(options);
  Mlp const mlp(unit, "mlp", options);
  auto const queue = memory::make_inline_queue("compute");
  Arena arena("activations", memory::Purpose::activations);
  PassContext const pass{
      .compute = *queue, .arena = arena, .dtype = Dtype::fp32, .batch = 1, .sequence = 2};
  tessera::test::ResidentParams params({unit}, Dtype::fp32,
                                       [](memory::ParameterSpec const& spec, float* out) {
                                         std::fill(out, out + spec.numel(), 1.0f);
                                       });
  params.begin_pass(memory::Pass::evaluation, {memory::first_unit});
  TensorView const in = pass.allocate(2, 16);
  kernels::fill(*queue, in, 1.0f);
  auto const saved = mlp.expand(pass, params.acquire(memory::first_unit, *queue), in);
  EXPECT_TRUE(saved.gate.empty());
  EXPECT_EQ(saved.before.dim(1), 14);
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
