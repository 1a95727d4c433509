#include "layers/norm.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

constexpr int heads = 2, head_dim = 4;
constexpr std::int64_t width = heads * head_dim;

LayerCase make(HeadNormScope scope, double gamma_offset) {
  UnitSpec unit;
  HeadNorm const norm(unit, "q_norm",
                      {.norm = {.kind = NormKind::rms, .gamma_offset = gamma_offset},
                       .scope = scope,
                       .heads = heads,
                       .head_dim = head_dim});
  return {unit,
          {2, 3, width, width},
          [norm](PassContext const& pass, WeightLease const& weights, TensorView out,
                 ConstTensorView in) {
            norm.forward(pass, weights, {{out.data(), width}, {in.data(), width}});
          },
          [norm](PassContext const& pass, BackwardLeases const& leases, TensorView din,
                 ConstTensorView dout, ConstTensorView in) {
            TensorView const out = pass.allocate(in.dim(0), width);
            auto const rstd =
                norm.forward(pass, leases.weights, {{out.data(), width}, {in.data(), width}});
            kernels::cast(pass.compute, din, dout);
            norm.backward(pass, leases, {din.data(), width}, {in.data(), width}, rstd);
          }};
}

TEST(HeadNorm, GradientsAreFiniteDifferences) {
  for (double const offset : {0.0, 1.0}) {
    make(HeadNormScope::each_head, offset).expect_gradients(1e-2);
    make(HeadNormScope::all_heads, offset).expect_gradients(1e-2);
  }
}

TEST(HeadNorm, GammaIsThatOfAHeadOrOfAll) {
  EXPECT_EQ(make(HeadNormScope::each_head, 0.0).params().spec(0).parameters[0].shape,
            std::vector<std::int64_t>{head_dim});
  EXPECT_EQ(make(HeadNormScope::all_heads, 0.0).params().spec(0).parameters[0].shape,
            std::vector<std::int64_t>{width});
}

}  // namespace
}  // namespace tessera::model::detail::test
