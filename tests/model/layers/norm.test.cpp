#include "layers/norm.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

constexpr std::int64_t width = 9;

NormOptions const kinds[] = {{.width = width},
                             {.width = width, .kind = NormKind::rms},
                             {.width = width, .kind = NormKind::rms, .gamma_offset = 1.0}};

class EachNorm : public testing::TestWithParam<NormOptions> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EachNorm, testing::ValuesIn(kinds));

TEST_P(EachNorm, GradientsAreFiniteDifferences) {
  UnitSpec unit;
  Norm const norm(unit, "ln", GetParam());
  LayerCase(
      unit, {2, 3, width, width},
      [norm](PassContext const& pass, WeightLease const& weights, TensorView out,
             ConstTensorView in) { norm.forward(pass, weights, out, in); },
      [norm](PassContext const& pass, BackwardLeases const& leases, TensorView din,
             ConstTensorView dout, ConstTensorView in) {
        TensorView const out = pass.allocate(in.dim(0), width);
        auto const saved = norm.forward(pass, leases.weights, out, in);
        norm.backward(pass, leases, {din}, dout, in, saved);
      })
      .expect_gradients();
}

/// out = norm(sum) + sum with sum = in + in: the gradient of the norm is added to that of the sum.
TEST_P(EachNorm, OfAResidualSumAddsToTheGradientOfTheStream) {
  UnitSpec unit;
  Norm const norm(unit, "ln", GetParam());
  auto const run = [norm](PassContext const& pass, WeightLease const& weights, TensorView sum,
                          TensorView out, ConstTensorView in) {
    auto const saved =
        norm.forward(pass, weights, out, {.sum = sum, .residual = in, .branch = in, .drop = {}});
    return saved;
  };
  LayerCase(
      unit, {2, 3, width, width},
      [run](PassContext const& pass, WeightLease const& weights, TensorView out,
            ConstTensorView in) {
        TensorView const sum = pass.allocate(in.dim(0), width);
        run(pass, weights, sum, out, in);
        kernels::add(pass.compute, out, sum);
      },
      [run, norm](PassContext const& pass, BackwardLeases const& leases, TensorView din,
                  ConstTensorView dout, ConstTensorView in) {
        TensorView const sum = pass.allocate(in.dim(0), width),
                         out = pass.allocate(in.dim(0), width);
        auto const saved = run(pass, leases.weights, sum, out, in);
        kernels::cast(pass.compute, din, dout);
        norm.backward(pass, leases, {din, kernels::WriteMode::add}, dout, sum, saved);
        kernels::scale(pass.compute, din, 2.0f);
      })
      .expect_gradients();
}

TEST(Norm, StartsWithAFactorOfOne) {
  using Kind = memory::Initializer::Kind;
  UnitSpec unit;
  Norm const layer(unit, "a", kinds[0]), rms(unit, "b", kinds[1]), offset(unit, "c", kinds[2]);
  ASSERT_EQ(unit.parameters.size(), 4u) << "only layer normalization has beta";
  EXPECT_EQ(unit.parameters[0].init.kind, Kind::ones);
  EXPECT_EQ(unit.parameters[1].init.kind, Kind::zeros);
  EXPECT_EQ(unit.parameters[2].init.kind, Kind::ones);
  EXPECT_EQ(unit.parameters[3].init.kind, Kind::zeros) << "one is added";
}

}  // namespace
}  // namespace tessera::model::detail::test
