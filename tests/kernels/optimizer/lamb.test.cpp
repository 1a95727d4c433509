/// Its values are compared with stored ones in tests/optim.
#include "tessera/kernels/optimizer/lamb.hpp"

#include <cmath>

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

TEST(Lamb, BothTraversalsGiveTheSameBits) {
  double sums[] = {30.0, 20.0};
  auto const kernel = [&](Queue& q, LambStep step) {
    step.sums = {sums};
    lamb(q, step);
  };
  expect_update_on_both_sides(kernel, LambStep(), 2);
}

/// Sums of segments of many lengths, against loops in double. A stream adds them in another order.
TEST(Lamb, NormsAreThoseOfEachSegment) {
  tessera::test::FakeDevice device;
  std::unique_ptr<Queue> const queues[] = {memory::make_inline_queue("compute"),
                                           memory::make_worker_queue("worker"),
                                           memory::make_stream_queue("compute")};
  std::int64_t const total = 60'000;
  Floats p = positive_numbers(total, 1), m = positive_numbers(total, 2),
         v = positive_numbers(total, 3);
  Floats const g = positive_numbers(total, 4);
  GradientControl const control{0.5, 0};
  for (auto const& q : queues) {
    LambStep step;
    step.control = &control;
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
      step.sums.push_back(sums.data() + 2 * k);
      at += n;
    }
    ASSERT_LE(at, total);
    lamb_norms(*q, step);
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
  auto const q = memory::make_inline_queue("compute");
  LambStep step;
  step.segments.resize(1);
  EXPECT_THROW(lamb_norms(*q, step), InternalError);
  EXPECT_THROW(lamb(*q, step), InternalError);
}

}  // namespace
}  // namespace tessera::kernels::test
