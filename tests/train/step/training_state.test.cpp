#include "tessera/train/step/training_state.hpp"

#include <gtest/gtest.h>

namespace tessera::train {
namespace {

data::Sampler sampler() {
  data::SamplerConfig config;
  config.samples = 10;
  config.micro_batch = 2;
  config.accumulation_steps = 2;
  config.epochs = 2;
  return data::Sampler(config);
}

TEST(TrainingState, EpochsAfterAStep) {
  auto const plan = sampler();  // 5 micro-batches per epoch: steps of 2, 2 and 1
  EXPECT_EQ(epochs_after(plan, 0), 0.0);
  EXPECT_DOUBLE_EQ(epochs_after(plan, 1), 0.4);
  EXPECT_DOUBLE_EQ(epochs_after(plan, 3), 1.0);
  EXPECT_DOUBLE_EQ(epochs_after(plan, 4), 1.4);
}

TEST(TrainingState, IsReadAsItWasWritten) {
  config::TrainingArguments arguments;
  arguments.seed = 5;
  config::ResolvedConfig config;
  config.train_batch_size = 4;
  auto const plan = sampler();
  optim::Schedule const schedule = [](std::int64_t step) {
    return 0.5 * static_cast<double>(step);
  };
  TrainingState state;
  state.applied_steps = 3;
  state.skipped_in_a_row = 2;
  state.evaluation_interrupted = true;
  state.resumed_from.set("run_id", "other").set("step", 2);
  EngineState engine{3, {}};
  engine.scaler.scale = 1024.0;
  engine.scaler.iteration = 4;
  engine.scaler.last_overflow = 2;
  engine.scaler.hysteresis = 1;

  auto const texts = ConfigTree().set("train_file_xxh3", "0123456789abcdef");
  auto const tree = trainer_state({arguments, config, plan, schedule, state, engine, texts}, 4);
  EXPECT_EQ(tree.at("step").as_int(), 4);
  EXPECT_DOUBLE_EQ(tree.at("epoch").as_double(), 1.4);
  EXPECT_EQ(tree.at("data_seed").as_int(), 5) << "the seed, unless it has a value of its own";
  EXPECT_EQ(tree.at("random").dump(), R"({"generator":"philox4x32-10","seed":5,"step":4})");
  EXPECT_EQ(tree.at("data").at("train_file_xxh3").as_string(), "0123456789abcdef");
  EXPECT_EQ(tree.at("data").at("samples").as_int(), 10);
  EXPECT_EQ(tree.at("data").at("epoch").as_int(), 1);
  EXPECT_EQ(tree.at("data").at("rounds_done").as_int(), 2);
  EXPECT_EQ(tree.at("data").at("rounds_per_epoch").as_int(), 5);
  EXPECT_EQ(tree.at("schedule").at("total_steps").as_int(), 6);
  EXPECT_DOUBLE_EQ(tree.at("schedule").at("next_learning_rate").as_double(), 2.0);
  EXPECT_EQ(tree.at("resumed_from").at("run_id").as_string(), "other");

  TrainingState read;
  auto const restored = read_trainer_state(tree, read);
  EXPECT_EQ(read.applied_steps, 3);
  EXPECT_EQ(read.skipped_in_a_row, 2);
  EXPECT_TRUE(read.evaluation_interrupted);
  EXPECT_EQ(restored.optimizer_steps, 3);
  EXPECT_EQ(restored.scaler.scale, 1024.0);
  EXPECT_EQ(restored.scaler.iteration, 4);
  EXPECT_EQ(restored.scaler.last_overflow, 2);
  EXPECT_EQ(restored.scaler.hysteresis, 1);
}

}  // namespace
}  // namespace tessera::train
