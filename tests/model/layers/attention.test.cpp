#include "layers/attention.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

QkvOptions qkv(int kv_heads) {
  return {.width = 6, .heads = 2, .kv_heads = kv_heads, .head_dim = 3, .names = {"qkv"}};
}

LayerCase make(AttentionOptions const& options, LayerShape const& shape) {
  UnitSpec unit;
  CausalSelfAttention const attention(unit, "attn", options);
  return {unit, shape,
          [attention](PassContext const& pass, WeightLease const& weights, TensorView out,
                      ConstTensorView in) {
            attention.project(pass, weights, out, attention.mix(pass, weights, in));
          },
          [attention](PassContext const& pass, BackwardLeases const& leases, TensorView din,
                      ConstTensorView dout, ConstTensorView in) {
            auto const saved = attention.mix(pass, leases.weights, in);
            attention.backward(pass, leases, din, dout, in, saved);
          }};
}

TEST(CausalSelfAttention, GradientsAreFiniteDifferences) {
  for (int kv_heads : {2, 1})
    make({.qkv = qkv(kv_heads), .scale = 0.6}, {2, 4, 6, 6}).expect_gradients();
}

TEST(CausalSelfAttention, GradientsWithDropoutOfTheWeights) {
  LayerCase layer = make({.qkv = qkv(2), .scale = 0.6, .dropout = 0.4}, {2, 4, 6, 6});
  auto const without = layer.output();
  layer.set_dropout();
  EXPECT_NE(layer.output(), without);
  layer.expect_gradients();
}

TEST(CausalSelfAttention, APositionDoesNotSeeLaterOnes) {
  LayerShape const shape{1, 5, 6, 6}, longer{1, 6, 6, 6};
  AttentionOptions const options{.qkv = qkv(2)};
  auto const first = make(options, shape).output(), all = make(options, longer).output();
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(first[i], all[i], 1e-6) << i;
}

}  // namespace
}  // namespace tessera::model::detail::test
