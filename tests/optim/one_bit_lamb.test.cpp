#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/core/error.hpp"
#include "tessera/optim/compression.hpp"
#include "trajectory.hpp"
#include "update_by.hpp"

namespace tessera::optim::test {
namespace {

TEST(OneBitLamb, CompressesAfterTheFreezeWithAScalePerUnit) {
  auto const optimizer = make_optimizer(make_spec("OneBitLamb", {{"freeze_step", 4}}));
  auto const* const compression = compression_of(*optimizer);
  ASSERT_TRUE(compression);
  EXPECT_TRUE(compression->communication(4).reduces_gradients);
  EXPECT_FALSE(compression->communication(5).reduces_gradients);
  EXPECT_EQ(compression->scales(), Compression::Scales::per_unit);
}

TEST(OneBitLamb, RefusesFactorsInTheWrongOrder) {
  EXPECT_THROW((void)make_spec("OneBitLamb", {{"factor_min", 2.0}, {"factor_max", 1.0}}),
               ConfigError);
}

struct OneBitLamb {
  std::unique_ptr<Optimizer> optimizer;
  Compression const& compression = *compression_of(*optimizer);

  /// Compresses from step 5 on.
  explicit OneBitLamb(std::vector<Hyperparameter> values)
      : optimizer(make_optimizer(make_spec("OneBitLamb", [&] {
          values.insert(values.end(), {{"freeze_step", 4}, {"weight_decay", 0.1}});
          return values;
        }()))) {}
};

Directions gradients_of(kernels::test::ElementwiseUpdate const& update) {
  Directions out;
  for (auto const& s : update.segments)
    out.push_back(static_cast<float*>(const_cast<void*>(s.gradient)));
  return out;
}

TEST(OneBitLamb, BothTraversalsGiveTheSameBits) {
  OneBitLamb const lamb({{"factor_threshold", 0.0}});  // the factor stays
  float coefficient = 0.5f, factor = 1.5f, scaling = 2.0f;
  std::vector<void*> const scalars{nullptr, nullptr,      nullptr, nullptr,
                                   nullptr, &coefficient, &factor, &scaling};
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, kernels::test::ElementwiseUpdate const& update) {
        lamb.compression.advance(q, parameters_of(update, {0, 3}, 8, scalars),
                                 {9, 0.05, update.control});
      },
      2, {0, 1});
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, kernels::test::ElementwiseUpdate const& update) {
        lamb.compression.complete(q, parameters_of(update, {0, 1, 2}, 8, scalars),
                                  {9, 0.05, update.control}, gradients_of(update));
      },
      3, {2});
  EXPECT_EQ(factor, 1.5f);
}

/// More parameters of many lengths than one launch holds are compared with loops in double.
TEST(OneBitLamb, ScalingsAndFactorsAreThoseOfEachParameter) {
  using kernels::test::positive_numbers;
  OneBitLamb const lamb({{"eps", 0.1}, {"factor_max", 1.5}, {"factor_threshold", 0.4}});
  tessera::test::FakeDevice device;
  std::unique_ptr<memory::Queue> const queues[] = {memory::make_inline_queue("compute"),
                                                   memory::make_worker_queue("worker"),
                                                   memory::make_stream_queue("compute")};
  std::int64_t const total = 60'000;
  std::size_t const count = 100;
  for (auto const& q : queues) {
    Floats p = positive_numbers(total, 1), m = positive_numbers(total, 2),
           v = positive_numbers(total, 3), fresh(p.size()), error(p.size()), scaling(count),
           factor(count), coefficient(count);
    kernels::test::ElementwiseUpdate step;
    std::int64_t at = 0;
    for (std::size_t k = 0; k < count; ++k) {
      auto const n = k == 7 ? std::int64_t{40'000} : static_cast<std::int64_t>(k * 3 % 100);
      if (k == 5) std::fill_n(m.begin() + at, n, 0.0f);
      step.segments.push_back({p.data() + at,
                               {m.data() + at, v.data() + at, fresh.data() + at, error.data() + at},
                               p.data() + at,
                               nullptr,
                               n,
                               0.1,
                               k % 2 ? 0.1 : 0.0});
      at += n;
    }
    auto segments = parameters_of(step, {0, 1, 2, 3}, 8);
    for (std::size_t k = 0; k < count; ++k)
      segments.list[k].parameter_states = {
          {nullptr, nullptr, nullptr, nullptr, nullptr, &coefficient[k], &factor[k], &scaling[k]}};
    lamb.compression.advance(*q, segments, {5, 0.1});
    q->record().wait("the scalings", std::chrono::seconds(60));
    EXPECT_EQ(Floats(fresh.begin(), fresh.begin() + at), Floats(v.begin(), v.begin() + at));
    Floats exchanged = m;
    for (std::size_t k = 0, i = 0; k < count; ++k) {
      auto const numel = static_cast<std::size_t>(step.segments[k].numel);
      double squares = 0.0;
      for (std::size_t end = i + numel; i < end; ++i) {
        squares += static_cast<double>(m[i]) * m[i];
        exchanged[i] *= scaling[k];
      }
      double const wanted =
          squares > 0.0 ? 1.0 / std::sqrt(squares / static_cast<double>(numel)) : 0.0;
      if (numel > 0) {
        EXPECT_NEAR(scaling[k], wanted, 1e-5 * wanted) << k;
      }
    }
    for (std::int64_t i = 0; i < at; ++i)
      fresh[static_cast<std::size_t>(i)] *= 0.4f + 0.01f * static_cast<float>(i % 150);
    Directions directions;
    for (auto const& s : step.segments)
      directions.push_back(exchanged.data() + (static_cast<float*>(s.master) - p.data()));
    lamb.compression.complete(*q, segments, {6, 0.1}, directions);
    q->record().wait("the factors", std::chrono::seconds(60));
    EXPECT_EQ(p, positive_numbers(total, 1)) << "the coefficients are zero";
    for (std::size_t k = 0; k < count; ++k) {
      auto const& s = step.segments[k];
      if (s.numel == 0) continue;
      auto const value = [&](std::size_t state, std::int64_t i) {
        return static_cast<double>(static_cast<float const*>(s.states[state])[i]);
      };
      double without = 0.0, with = 0.0, next = 0.0;
      for (std::int64_t i = 0; i < s.numel; ++i) {
        double const d = std::sqrt(value(1, i)) + 0.1, u = value(0, i) / d;
        without += u * u;
        with += std::pow(u + s.weight_decay * static_cast<float const*>(s.master)[i], 2.0);
        next = std::max(next, d / (std::sqrt(value(2, i)) + 0.1));
      }
      double const share = s.weight_decay > 0.0 ? std::sqrt(without / with) : 1.0;
      next = std::clamp(next * share + (1.0 - share), 0.5, 1.5);
      EXPECT_NEAR(factor[k], std::clamp(next, 0.6, 1.4), 1e-5) << k;
    }
  }
}

TEST(OneBitLamb, TheWarmUpAveragesRatios) {
  OneBitLamb const lamb({{"max_coeff", 2.0}});
  auto const& summing = dynamic_cast<SummingOptimizer const&>(*lamb.optimizer);
  auto const q = memory::make_inline_queue("compute");
  double sums[] = {4.0, 16.0, 9.0, 1.0, 1.0, 1.0, 0.0, 1.0};
  Floats coefficients(4, 1.0f);
  std::vector<CompleteParameter> parameters;
  for (std::size_t k = 0; k < 4; ++k) {
    parameters.push_back({{1}, std::vector<void*>(8), {sums + 2 * k}});
    parameters[k].states[5] = &coefficients[k];
  }
  kernels::GradientControl const skip{1.0, 1};
  summing.update_states(*q, 0, parameters, {1, 0.1, &skip});
  EXPECT_EQ(coefficients, Floats(4, 1.0f));
  summing.update_states(*q, 0, parameters, {1, 0.1});
  EXPECT_FLOAT_EQ(coefficients[0], 0.95f);
  EXPECT_FLOAT_EQ(coefficients[1], 1.1f);  // at most max_coeff
  EXPECT_EQ(coefficients[2], 1.0f);
  EXPECT_EQ(coefficients[3], 1.0f);
}

}  // namespace
}  // namespace tessera::optim::test
