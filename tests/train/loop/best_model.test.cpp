#include "tessera/train/loop/model_export.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace tessera::train {
namespace {

EvaluationResult of_loss(double loss) { return {.loss = loss, .perplexity = 10.0 * loss}; }

TEST(BestModel, KeepsTheLowestLossAndItsStep) {
  TrainingState state;
  BestModel best({}, state);
  EXPECT_EQ(best.best_text(), "none");
  EXPECT_TRUE(best.evaluated(10, of_loss(2.0)));
  EXPECT_FALSE(best.evaluated(20, of_loss(2.5)));
  EXPECT_FALSE(best.evaluated(30, of_loss(2.0))) << "equal is not better";
  EXPECT_FALSE(best.evaluated(40, of_loss(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(best.evaluated(50, of_loss(1.5)));
  EXPECT_EQ(state.best.step, 50);
  EXPECT_EQ(best.best_text(), "eval_loss 1.5000 of step 50");
  EXPECT_FALSE(best.should_stop()) << "no patience was set";
}

TEST(BestModel, HigherMayBeBetter) {
  TrainingState state;
  BestModel best({BestModel::Metric::perplexity, BestModel::Better::higher, {}, 0.0}, state);
  EXPECT_TRUE(best.evaluated(1, of_loss(1.0)));
  EXPECT_TRUE(best.evaluated(2, of_loss(2.0)));
  EXPECT_EQ(state.best.metric, 20.0);
}

/// Trainer's EarlyStoppingCallback has this rule: an improvement within the threshold is the best,
/// yet counts against the patience.
TEST(BestModel, StopsAfterThePatience) {
  TrainingState state;
  BestModel best({.patience = 2, .threshold = 0.1}, state);
  best.evaluated(1, of_loss(2.0));
  EXPECT_TRUE(best.evaluated(2, of_loss(1.95)));
  EXPECT_FALSE(best.should_stop());
  best.evaluated(3, of_loss(1.5));
  EXPECT_EQ(state.best.evaluations_without_improvement, 0);
  best.evaluated(4, of_loss(1.6));
  EXPECT_FALSE(best.should_stop());
  best.evaluated(5, of_loss(1.45));
  EXPECT_TRUE(best.should_stop());
  TrainingState const resumed = state;
  TrainingState copy = resumed;
  EXPECT_TRUE(BestModel({.patience = 2, .threshold = 0.1}, copy).should_stop()) << "after a resume";
}

TEST(BestModel, OptionsAskForIt) {
  EXPECT_FALSE(best_model_options(config::parse_options({})));
  auto const options = best_model_options(config::parse_options(
      {"--save_strategy", "best", "--eval_strategy", "steps", "--metric_for_best_model",
       "eval_perplexity", "--greater_is_better", "--early_stopping_patience", "3"}));
  ASSERT_TRUE(options);
  EXPECT_EQ(options->metric, BestModel::Metric::perplexity);
  EXPECT_EQ(options->better, BestModel::Better::higher);
  EXPECT_EQ(options->patience, 3);
}

TEST(BestModel, ALargerAccuracyIsBetter) {
  auto const options = best_model_options(
      config::parse_options({"--save_strategy", "best", "--eval_strategy", "steps",
                             "--metric_for_best_model", "eval_accuracy"}));
  ASSERT_TRUE(options);
  TrainingState state;
  BestModel best(*options, state);
  EvaluationResult result;
  for (double const accuracy : {0.25, 0.125}) {
    result.accuracy = accuracy;
    EXPECT_EQ(best.evaluated(10, result), accuracy == 0.25);
  }
  EXPECT_EQ(best.best_text(), "eval_accuracy 0.2500 of step 10");
}

}  // namespace
}  // namespace tessera::train
