#include "tessera/train/setup/training_data.hpp"

#include <gtest/gtest.h>

namespace tessera::train {
namespace {

config::TrainingArguments two_seeds() {
  config::TrainingArguments arguments;
  arguments.seed = 3;
  arguments.data_seed = 5;
  return arguments;
}

TEST(SamplerConfig, TakesBatchesFromTheResolvedConfiguration) {
  config::ResolvedConfig config;
  config.micro_batch_size = 4;
  config.accumulation_steps = 2;
  config.drop_last = true;
  auto const made = sampler_config(two_seeds(), config, 100, 8);
  EXPECT_EQ(made.samples, 100);
  EXPECT_EQ(made.ranks, 8);
  EXPECT_EQ(made.micro_batch, 4);
  EXPECT_EQ(made.accumulation_steps, 2);
  EXPECT_EQ(made.last_micro_step, data::LastMicroStep::drop);
}

TEST(SamplerConfig, DrawsTheDefaultOrderFromTheDataSeed) {
  auto const made = sampler_config(two_seeds(), {}, 100, 1);
  EXPECT_EQ(made.order, data::SampleOrder::random);
  EXPECT_EQ(made.seed, 5u);
}

/// Trainer shuffles for LengthGroupedSampler with torch's global generator.
TEST(SamplerConfig, DrawsGroupByLengthFromTheSeed) {
  auto by_flag = two_seeds(), by_strategy = two_seeds();
  by_flag.group_by_length = true;
  by_strategy.train_sampling_strategy = config::Sampling::group_by_length;
  for (auto const& arguments : {by_flag, by_strategy}) {
    auto const made = sampler_config(arguments, {}, 100, 1);
    EXPECT_EQ(made.order, data::SampleOrder::group_by_length);
    EXPECT_EQ(made.seed, 3u);
  }
}

}  // namespace
}  // namespace tessera::train
