#include "tessera/train/step/preference.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::train {
namespace {

using config::LossType;

TEST(PairLoss, EqualsItsFormula) {
  Completion const chosen{-4.0, -5.0, 4.0}, rejected{-6.0, -4.0, 5.0};  // log ratios 1 and -2
  auto const loss = [&](LossType type, double beta, double smoothing = 0.0) {
    return pair_loss({type, beta, smoothing}, chosen, rejected).loss;
  };
  double const clean = std::log1p(std::exp(-0.6)), swapped = std::log1p(std::exp(0.6));
  EXPECT_NEAR(loss(LossType::sigmoid, 0.2), clean, 1e-15);
  EXPECT_NEAR(loss(LossType::hinge, 0.2), 0.4, 1e-15);
  EXPECT_EQ(loss(LossType::hinge, 1.0), 0.0);
  EXPECT_NEAR(loss(LossType::ipo, 0.5), std::pow(1.0 / 4 + 2.0 / 5 - 1.0, 2), 1e-15);
  EXPECT_NEAR(loss(LossType::robust, 0.2, 0.1), (0.9 * clean - 0.1 * swapped) / 0.8, 1e-15);
  EXPECT_NEAR(pair_loss({}, {.log_probability = -1e5}, {}).loss, 1e4, 1e-9) << "no overflow";
}

TEST(PairLoss, HasTheDerivativesOfFiniteDifferences) {
  constexpr double h = 1e-5;
  for (auto const type : {LossType::sigmoid, LossType::hinge, LossType::ipo, LossType::robust})
    for (double const chosen : {-7.0, -3.0, 2.0})
      for (double const beta : {0.1, 0.7}) {
        PreferenceOptions const options{type, beta, type == LossType::robust ? 0.2 : 0.0};
        Completion const a{chosen, -4.0, 3.0}, b{-5.0, -4.5, 7.0};
        auto const at = [&](double da, double db) {
          Completion moved_a = a, moved_b = b;
          moved_a.log_probability += da;
          moved_b.log_probability += db;
          return pair_loss(options, moved_a, moved_b).loss;
        };
        auto const got = pair_loss(options, a, b);
        EXPECT_NEAR(got.by_chosen, (at(h, 0) - at(-h, 0)) / (2 * h), 1e-9);
        EXPECT_NEAR(got.by_rejected, (at(0, h) - at(0, -h)) / (2 * h), 1e-9);
      }
}

TEST(Preference, SumsTheRowsOfABatchAndItsMetrics) {
  // two pairs of rows with 3 tokens, of which the last one or two are predicted
  std::vector<std::int32_t> const labels{-1, 5, 6, -1, -1, 7, -1, -1, 8, -1, 9, 5};
  Preference preference({LossType::sigmoid, 0.5}, [](model::Batch const& batch) {
    EXPECT_EQ(batch.rows, 4);
    return std::vector<double>{-2.0, -1.0, -3.0, -2.0};
  });
  model::Batch batch{nullptr, 4, 3};
  batch.labels = labels.data();
  preference.begin(batch);
  EXPECT_EQ(batch.row_loss, &preference);
  // log-probabilities -1, -4, -3 and -6: log ratios 1, -3, 0 and -4
  auto const factors = preference.weigh({.losses = {0.5f, 0.5f, 0, 0, 4, 0, 0, 3, 0, 2, 4, 0},
                                         .hits = {1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0},
                                         .entropy = {},
                                         .mean_logits = {1, 2, 0, 0, 4, 0, 0, 3, 0, 5, 7, 0}});
  ASSERT_EQ(factors.size(), 4u);
  double const slope = 0.5 / (1.0 + std::exp(2.0));  // both margins are 2
  for (std::size_t row = 0; row < 4; ++row)
    EXPECT_NEAR(factors[row], row % 2 == 0 ? slope : -slope, 1e-7);
  EXPECT_NEAR(preference.loss(), 2 * std::log1p(std::exp(-2.0)), 1e-12);
  auto const sums = PreferenceSums::of(preference.sums().values().data());
  EXPECT_NEAR(sums.accuracy(), 2.0 / 3, 1e-12) << "of the chosen tokens";
  std::array<double, 8> const want{2.0, 16.0 / 3, 0.25, -1.75, 1.0, 2.0, -2.0, -5.0};
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(sums.means().values[i], want[i], 1e-6) << PreferenceMetrics::names[i];
}

TEST(RowLogProbabilities, AreTheNegativeSumsOfTheTokenLosses) {
  RowLogProbabilities rows(2);
  EXPECT_TRUE(rows.weigh({{1, 2, 0, 4, 0, 0}, {}, {}, {}}).empty());
  EXPECT_EQ(rows.sums, (std::vector<double>{-3.0, -4.0}));
}

}  // namespace
}  // namespace tessera::train
