#include "decoder/block.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

constexpr std::int64_t width = 6;

enum class Norms { before, after, both };

LayerCase make(double residual_dropout, Residual residual = Residual::sequential,
               Norms norms = Norms::before, bool second_norm = true) {
  UnitSpec unit;
  auto const norm = [&](char const* name, bool wanted) {
    return wanted ? std::optional(Norm(unit, name, {.width = width})) : std::nullopt;
  };
  bool const before = norms != Norms::after, after = norms != Norms::before;
  BlockNorms const all{.before_attention = norm("before_attention", before),
                       .after_attention = norm("after_attention", after),
                       .before_mlp = norm("before_mlp", before && second_norm),
                       .after_mlp = norm("after_mlp", after)};
  CausalSelfAttention const attention(
      unit, "attn",
      {.qkv = {.width = width, .heads = 2, .kv_heads = 2, .head_dim = 3, .names = {"qkv"}},
       .scale = 0.6});
  Mlp const mlp(unit, "mlp", {.width = width, .inner = 8});
  Block const block(
      {.layer = 1, .width = width, .residual_dropout = residual_dropout, .residual = residual}, all,
      attention, mlp);
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

void expect_gradients_with_and_without_dropout(Residual residual, Norms norms, bool second_norm) {
  make(0.0, residual, norms, second_norm).expect_gradients(1e-2);
  LayerCase dropping = make(0.3, residual, norms, second_norm);
  dropping.set_dropout();
  dropping.expect_gradients(1e-2);
}

TEST(Block, NormsAfterTheBranchesAndAroundThem) {
  for (Norms const norms : {Norms::after, Norms::both})
    expect_gradients_with_and_without_dropout(Residual::sequential, norms, true);
}

TEST(Block, ParallelBranchesWithTwoNormsAndWithASharedOne) {
  for (bool const second_norm : {true, false})
    expect_gradients_with_and_without_dropout(Residual::parallel, Norms::before, second_norm);
}

}  // namespace
}  // namespace tessera::model::detail::test
