#include "tessera/train/step/training_step.hpp"

#include <gtest/gtest.h>

#include "small_run.hpp"
#include "tessera/train/step/evaluator.hpp"

namespace tessera::train {
namespace {

data::Sampler sampler(std::int64_t micro_batch, std::int64_t accumulation_steps) {
  data::SamplerConfig config;
  config.samples = 8;
  config.micro_batch = micro_batch;
  config.accumulation_steps = accumulation_steps;
  config.epochs = 2;
  config.order = data::SampleOrder::sequential;
  return data::Sampler(config);
}

zero::EngineConfig engine_config(int accumulation_steps) {
  zero::EngineConfig config;
  config.accumulation_steps = accumulation_steps;
  return config;
}

data::TokenSequences eight_sequences(ScratchFiles const& files) {
  auto sequences = test::small_sequences(files, 16);
  sequences.keep_first(8);
  return sequences;
}

TEST(TrainingStep, ItsLossIsThatOfItsSamplesBeforeTheUpdate) {
  test::SmallRun run;
  auto const sequences = eight_sequences(run.files);
  auto plan = sampler(8, 1);
  double const before = Evaluator(run.context(), sequences, 8).evaluate().loss;
  TrainingStep step(run.context(), *run.engine, sequences, {.micro_batch_size = 8});
  auto const outcome = step.run(1, plan, 1e-2);
  EXPECT_NEAR(outcome.loss, before, 1e-6 * before);
  EXPECT_EQ(outcome.samples, 8);
  EXPECT_EQ(outcome.tokens, 8 * 15);
  EXPECT_EQ(outcome.learning_rate, 1e-2);
  EXPECT_FALSE(outcome.update.skipped);
  EXPECT_GT(outcome.update.grad_norm, 0.0);
  EXPECT_LT(Evaluator(run.context(), sequences, 8).evaluate().loss, before) << "the step learns";
}

TEST(TrainingStep, MicroStepsAddUpToTheSameGradients) {
  test::SmallRun one(engine_config(1)), four(engine_config(4));
  auto const sequences = eight_sequences(one.files);
  auto plan_one = sampler(8, 1), plan_four = sampler(2, 4);
  TrainingStep big(one.context(), *one.engine, sequences, {.micro_batch_size = 8});
  TrainingStep small(four.context(), *four.engine, sequences,
                     {.micro_batch_size = 2, .recompute = Recompute::block});
  auto const a = big.run(1, plan_one, 1e-2), b = small.run(1, plan_four, 1e-2);
  EXPECT_NEAR(b.loss, a.loss, 1e-6 * a.loss);
  EXPECT_NEAR(b.update.grad_norm, a.update.grad_norm, 1e-5 * a.update.grad_norm);
}

}  // namespace
}  // namespace tessera::train
