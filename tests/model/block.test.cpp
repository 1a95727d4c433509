#include "detail/block.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

constexpr std::int64_t width = 6;

LayerCase make(double residual_dropout) {
  UnitSpec unit;
  LayerNorm const norm_1(unit, "ln_1", width, 1e-5);
  CausalSelfAttention const attention(
      unit, "attn", {.width = width, .heads = 2, .kv_heads = 2, .head_dim = 3, .scale = 0.6});
  LayerNorm const norm_2(unit, "ln_2", width, 1e-5);
  Mlp const mlp(unit, "mlp", {.width = width, .inner = 8});
  Block const block({.layer = 1, .width = width, .residual_dropout = residual_dropout}, norm_1,
                    attention, norm_2, mlp);
  return {unit,
          {2, 3, width, width},
          [block](PassContext const& pass, WeightLease const& weights, TensorView out,
                  ConstTensorView in) { block.forward(pass, weights, out, in); },
          [block](PassContext const& pass, BackwardLeases const& leases, TensorView din,
                  ConstTensorView dout, ConstTensorView in) {
            TensorView const out = pass.allocate(in.dim(0), width);
            auto const saved = block.recompute(pass, leases.weights, out, in);
            kernels::cast(pass.compute, din, dout);
            block.backward(pass, leases, din, in, saved);
          }};
}

TEST(Block, GradientsOfRecomputedActivationsAreFiniteDifferences) {
  make(0.0).expect_gradients(6e-3);
}

TEST(Block, GradientsWithDropoutOfBothBranches) {
  LayerCase layer = make(0.3);
  auto const without = layer.output();
  layer.set_dropout();
  EXPECT_NE(layer.output(), without);
  layer.expect_gradients(6e-3);
}

}  // namespace
}  // namespace tessera::model::detail::test
