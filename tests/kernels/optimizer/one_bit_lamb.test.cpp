/// Trajectories are compared in tests/zero/engine/one_bit_optimizers.test.cpp.
#include "tessera/kernels/optimizer/lamb.hpp"

#include <algorithm>
#include <cmath>

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

template <auto kernel>
void with_scalars(Queue& q, OneBitLambStep step) {
  static float coefficient = 0.5f, factor = 1.5f, scaling = 2.0f;
  step.parameters = {{&coefficient, &factor, &scaling}};
  kernel(q, step);
}

TEST(OneBitLamb, BothTraversalsGiveTheSameBits) {
  expect_update_on_both_sides(with_scalars<one_bit_lamb_momentum>, OneBitLambStep(), 2, {0, 1});
  expect_update_on_both_sides(with_scalars<one_bit_lamb_moments>, OneBitLambStep(), 2, {0});
  expect_update_on_both_sides(with_scalars<one_bit_lamb>, OneBitLambStep(), 2, {1, 2});
}

/// More parameters of many lengths than one launch holds are compared with loops in double.
TEST(OneBitLamb, ScalingsAndFactorsAreThoseOfEachParameter) {
  tessera::test::FakeDevice device;
  std::unique_ptr<Queue> const queues[] = {memory::make_inline_queue("compute"),
                                           memory::make_worker_queue("worker"),
                                           memory::make_stream_queue("compute")};
  std::int64_t const total = 60'000;
  std::size_t const count = 100;
  for (auto const& q : queues) {
    Floats p = positive_numbers(total, 1), m = positive_numbers(total, 2),
           v = positive_numbers(total, 3), fresh(p.size()), scaling(count), factor(count);
    OneBitLambStep step;
    step.epsilon = 0.1;
    step.factor_max = 1.5;
    step.factor_threshold = 0.4;
    std::int64_t at = 0;
    for (std::size_t k = 0; k < count; ++k) {
      auto const n = k == 7 ? std::int64_t{40'000} : static_cast<std::int64_t>(k * 3 % 100);
      if (k == 5) std::fill_n(m.begin() + at, n, 0.0f);
      step.segments.push_back({p.data() + at,
                               {m.data() + at, v.data() + at, fresh.data() + at},
                               p.data() + at,
                               nullptr,
                               n,
                               0.1,
                               k % 2 ? 0.1 : 0.0});
      step.parameters.push_back({nullptr, &factor[k], &scaling[k]});
      at += n;
    }
    one_bit_lamb_begin(*q, step);
    q->record().wait("the scalings", std::chrono::seconds(60));
    EXPECT_EQ(Floats(fresh.begin(), fresh.begin() + at), Floats(v.begin(), v.begin() + at));
    for (std::int64_t i = 0; i < at; ++i)
      fresh[static_cast<std::size_t>(i)] *= 0.4f + 0.01f * static_cast<float>(i % 150);
    one_bit_lamb_factors(*q, step);
    q->record().wait("the factors", std::chrono::seconds(60));
    for (std::size_t k = 0; k < count; ++k) {
      auto const& s = step.segments[k];
      if (s.numel == 0) continue;
      auto const value = [&](std::size_t state, std::int64_t i) {
        return static_cast<double>(static_cast<float const*>(s.states[state])[i]);
      };
      double squares = 0.0, without = 0.0, with = 0.0, next = 0.0;
      for (std::int64_t i = 0; i < s.numel; ++i) {
        double const d = std::sqrt(value(1, i)) + 0.1, u = value(0, i) / d;
        squares += value(0, i) * value(0, i);
        without += u * u;
        with += std::pow(u + s.weight_decay * static_cast<float const*>(s.master)[i], 2.0);
        next = std::max(next, d / (std::sqrt(value(2, i)) + 0.1));
      }
      double const wanted =
          squares > 0.0 ? 1.0 / std::sqrt(squares / static_cast<double>(s.numel)) : 0.0;
      EXPECT_NEAR(scaling[k], wanted, 1e-5 * wanted) << k;
      double const share = s.weight_decay > 0.0 ? std::sqrt(without / with) : 1.0;
      next = std::clamp(next * share + (1.0 - share), 0.5, 1.5);
      EXPECT_NEAR(factor[k], std::clamp(next, 0.6, 1.4), 1e-5) << k;
    }
  }
}

TEST(OneBitLamb, TheWarmUpAveragesRatios) {
  auto const q = memory::make_inline_queue("compute");
  double const sums[] = {4.0, 16.0, 9.0, 1.0, 1.0, 1.0, 0.0, 1.0};
  Floats coefficients(4, 1.0f);
  LambCoefficients step;
  for (std::size_t k = 0; k < 4; ++k) step.parameters.push_back({sums + 2 * k, &coefficients[k]});
  step.max_coeff = 2.0;
  GradientControl const skip{1.0, 1};
  step.control = &skip;
  lamb_coefficients(*q, step);
  EXPECT_EQ(coefficients, Floats(4, 1.0f));
  step.control = nullptr;
  lamb_coefficients(*q, step);
  EXPECT_FLOAT_EQ(coefficients[0], 0.95f);
  EXPECT_FLOAT_EQ(coefficients[1], 1.1f);  // at most max_coeff
  EXPECT_EQ(coefficients[2], 1.0f);
  EXPECT_EQ(coefficients[3], 1.0f);
}

}  // namespace
}  // namespace tessera::kernels::test
