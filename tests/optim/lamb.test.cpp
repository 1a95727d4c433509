#include "optimizers/one_bit.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

TEST(Lamb, EqualsDeepSpeedsKernel) { expect_trajectories("Lamb"); }

TEST(Lamb, RefusesCoefficientsInTheWrongOrder) {
  EXPECT_THROW((void)make_spec("Lamb", {{"min_coeff", 2.0}, {"max_coeff", 1.0}}), ConfigError);
}

/// Two parameters in one segment have norms of their own, and padding between them stays zero.
TEST(Lamb, TakesNormsOfEachParameter) {
  auto const queue = memory::make_inline_queue("compute");
  auto const optimizer = make_optimizer(make_spec("OneBitLamb", {{"beta1", 0.0}, {"beta2", 0.0}}));
  auto const& lamb = dynamic_cast<SummingOptimizer const&>(*optimizer);
  Floats p{4.0f, 3.0f, 0.0f, 0.0f, 100.0f}, m(5), v(5), g{1.0f, -1.0f, 0.0f, 0.0f, 2.0f};
  double sums[4];
  kernels::GradientControl const control;
  Segment s;
  s.master = p.data();
  s.states = {m.data(), v.data()};
  s.gradient = g.data();
  s.numel = 5;
  s.parameters = {{{2}, 2, 0, 0, 2}, {{1}, 1, 0, 4, 1}};
  Segments const segments{{s}, Dtype::fp32, Dtype::fp32};
  ParameterSums const places{{{{sums, sums + 2}}}};
  lamb.sum(*queue, 0, segments, {1, 0.5, &control}, places);
  EXPECT_NEAR(sums[0], 25.0, 1e-6);
  EXPECT_NEAR(sums[1], 2.0, 1e-6);  // m / sqrt(v) is the sign
  EXPECT_NEAR(sums[2], 1e4, 1e-2);
  lamb.update_with(*queue, segments, {1, 0.5, &control}, places);
  EXPECT_THROW(optimizer->update(*queue, segments, {1, 0.5, &control}), InternalError);
  EXPECT_NEAR(p[0], 4.0 - 0.5 * 5.0 / std::sqrt(2.0), 1e-5);
  EXPECT_NEAR(p[4], 100.0 - 0.5 * 10.0, 1e-5);  // the ratio is clamped
  EXPECT_EQ(p[2], 0.0f);
  EXPECT_EQ(v[3], 0.0f);
}

}  // namespace
}  // namespace tessera::optim::test
