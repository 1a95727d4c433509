#include "optimizers/one_bit.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
#include "trajectory.hpp"
#include "update_by.hpp"

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

struct LambOptimizer {
  std::unique_ptr<Optimizer> optimizer = make_optimizer(make_spec("Lamb", {{"weight_decay", 0.1}}));
  SummingOptimizer const& summing = dynamic_cast<SummingOptimizer const&>(*optimizer);
};

TEST(Lamb, BothTraversalsGiveTheSameBits) {
  LambOptimizer const lamb;
  double sums[] = {30.0, 20.0};
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, kernels::test::ElementwiseUpdate const& update) {
        lamb.summing.update_with(q, parameters_of(update, {0, 1}, 2), {1, 0.05, update.control},
                                 {{{{sums}}}});
      },
      2);
}

/// Sums of segments of many lengths, against loops in double. A stream adds them in another order.
TEST(Lamb, NormsAreThoseOfEachSegment) {
  LambOptimizer const lamb;
  tessera::test::FakeDevice device;
  std::unique_ptr<memory::Queue> const queues[] = {memory::make_inline_queue("compute"),
                                                   memory::make_worker_queue("worker"),
                                                   memory::make_stream_queue("compute")};
  using kernels::test::positive_numbers;
  std::int64_t const total = 60'000;
  Floats p = positive_numbers(total, 1), m = positive_numbers(total, 2),
         v = positive_numbers(total, 3);
  Floats const g = positive_numbers(total, 4);
  kernels::GradientControl const control{0.5, 0};
  for (auto const& q : queues) {
    kernels::test::ElementwiseUpdate step;
    ParameterSums places;
    places.of.resize(1);
    std::vector<double> sums(200, -1.0);
    std::int64_t at = 0;
    for (int k = 0; k < 100; ++k) {  // more than one launch holds
      std::int64_t const n = k == 7 ? 40'000 : k * 3 % 100;
      step.segments.push_back({p.data() + at,
                               {m.data() + at, v.data() + at},
                               g.data() + at,
                               nullptr,
                               n,
                               0.1,
                               k % 2 ? 0.1 : 0.0});
      places.of[0].push_back({sums.data() + 2 * k});
      at += n;
    }
    ASSERT_LE(at, total);
    lamb.summing.sum(*q, 0, parameters_of(step, {0, 1}, 2), {1, 0.1, &control}, places);
    q->record().wait("the norms", std::chrono::seconds(60));
    for (std::size_t k = 0; k < 100; ++k) {
      auto const& s = step.segments[k];
      double weights = 0.0, update = 0.0;
      for (std::int64_t i = 0; i < s.numel; ++i) {
        double const gi = 0.5 * static_cast<float const*>(s.gradient)[i];
        double const mi = 0.9 * static_cast<float const*>(s.states[0])[i] + 0.1 * gi,
                     vi = 0.999 * static_cast<float const*>(s.states[1])[i] + 0.001 * gi * gi;
        double const u =
            mi / (std::sqrt(vi) + 1e-8) + s.weight_decay * static_cast<float const*>(s.master)[i];
        weights += static_cast<double>(static_cast<float const*>(s.master)[i]) *
                   static_cast<float const*>(s.master)[i];
        update += u * u;
      }
      if (s.numel == 0) continue;
      EXPECT_NEAR(sums[2 * k], weights, 1e-6 * weights) << k;
      EXPECT_NEAR(sums[2 * k + 1], update, 1e-6 * update) << k;
    }
  }
  EXPECT_EQ(m, positive_numbers(total, 2)) << "the states have changed";
}

TEST(Lamb, RefusesSegmentsWithoutSums) {
  LambOptimizer const lamb;
  auto const q = memory::make_inline_queue("compute");
  kernels::test::ElementwiseUpdate step;
  step.segments.resize(1);
  auto const segments = parameters_of(step, {0, 1}, 2);
  EXPECT_THROW(lamb.summing.sum(*q, 0, segments, {}, {{{}}}), InternalError);
  EXPECT_THROW(lamb.summing.update_with(*q, segments, {}, {{{}}}), InternalError);
}

}  // namespace
}  // namespace tessera::optim::test
