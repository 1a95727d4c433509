#include "tessera/train/run_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "scratch_files.hpp"

namespace tessera::train {
namespace {

using ::testing::ElementsAre;

std::vector<ConfigTree> records(std::filesystem::path const& directory) {
  std::vector<ConfigTree> out;
  std::ifstream in(directory / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(ConfigTree::parse(line, "metrics"));
  return out;
}

StepOutcome outcome(double loss) {
  return {.loss = loss,
          .tokens = 30,
          .samples = 2,
          .learning_rate = 0.25,
          .update = {.grad_norm = 3.0, .loss_scale = 8.0, .skipped = true},
          .seconds = 0.5};
}

TEST(RunLog, WritesARecordPerStepEvaluationAndCheckpoint) {
  ScratchFiles const files;
  RunLog log(files.directory(), RunLog::Role::writer);
  log.open_metrics(1);
  log.begin_training({.total_steps = 2, .logging_steps = 1, .tokens_per_sample = 16});
  log.step({1, 0.5, 32, outcome(4.0)});
  log.end_step();
  log.evaluation(1, 0.5, {.loss = 1.0, .perplexity = 2.7, .samples = 6, .passes = 3, .seconds = 2});
  checkpoint::SavedCheckpoint saved;
  saved.directory = "run/checkpoints/step_00000001";
  saved.bytes = 9;
  saved.seconds = 1.5;
  log.checkpoint(1, saved, RunLog::CheckpointKind::resumable);
  log.step({2, 1.0, 64, outcome(2.0)});

  auto const all = records(files.directory());
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].at("step").as_int(), 1);
  EXPECT_EQ(all[0].at("epoch").as_double(), 0.5);
  EXPECT_EQ(all[0].at("loss").as_double(), 4.0);
  EXPECT_EQ(all[0].at("grad_norm").as_double(), 3.0);
  EXPECT_EQ(all[0].at("learning_rate").as_double(), 0.25);
  EXPECT_EQ(all[0].at("loss_scale").as_double(), 8.0);
  EXPECT_TRUE(all[0].at("skipped").as_bool());
  EXPECT_EQ(all[0].at("seconds").as_double(), 0.5);
  EXPECT_GT(all[0].at("tokens_per_second").as_double(), 0.0);
  EXPECT_EQ(all[0].at("tokens").as_int(), 32);
  EXPECT_EQ(all[1].dump(), R"({"step":1,"epoch":0.5,"eval_loss":1.0,"perplexity":2.7})");
  EXPECT_EQ(all[2].dump(),
            R"({"step":1,"checkpoint":"step_00000001","save_seconds":1.5,"save_stall_seconds":0.0,)"
            R"("save_bytes":9})");
  EXPECT_EQ(all[3].at("tokens").as_int(), 64);
}

TEST(RunLog, WritesTheResultFilesOfRunClm) {
  ScratchFiles const files;
  RunLog log(files.directory(), RunLog::Role::writer);
  log.begin_training({.total_steps = 2, .logging_steps = 500, .tokens_per_sample = 16});
  log.step({1, 0.5, 32, outcome(4.0)});
  log.step({2, 1.0, 64, outcome(2.0)});
  log.training_results(
      {.epoch = 1.0, .seconds = 4.0, .steps = 2, .samples = 4, .train_batch_size = 2});
  log.evaluation(2, 1.0, {.loss = 1.0, .perplexity = 2.7, .samples = 6, .passes = 3, .seconds = 2});
  auto const train = ConfigTree::read(files.directory() / "train_results.json");
  EXPECT_EQ(train.at("train_loss").as_double(), 3.0) << "the mean over the steps";
  EXPECT_EQ(train.at("train_samples_per_second").as_double(), 1.0);
  EXPECT_EQ(train.at("train_steps_per_second").as_double(), 0.5);
  auto const eval = ConfigTree::read(files.directory() / "eval_results.json");
  EXPECT_EQ(eval.at("eval_samples_per_second").as_double(), 3.0);
  EXPECT_EQ(eval.at("eval_steps_per_second").as_double(), 1.5);
  EXPECT_TRUE(std::filesystem::exists(files.directory() / "all_results.json"));
  EXPECT_FALSE(std::filesystem::exists(files.directory() / "metrics.jsonl")) << "not opened";
}

TEST(RunLog, IsSilentOnTheOtherRanks) {
  ScratchFiles const files;
  RunLog log(files.directory(), RunLog::Role::silent);
  log.open_metrics(1);
  log.begin_training({.total_steps = 1, .logging_steps = 1, .tokens_per_sample = 16});
  log.step({1, 1.0, 32, outcome(4.0)});
  log.end_step();
  log.evaluation(1, 1.0, {});
  log.checkpoint(1, {}, RunLog::CheckpointKind::resumable);
  log.training_results({});
  EXPECT_TRUE(std::filesystem::is_empty(files.directory()));
}

}  // namespace
}  // namespace tessera::train
