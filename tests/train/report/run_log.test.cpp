#include "tessera/train/report/run_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

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
  auto with_graphs = outcome(2.0);
  with_graphs.graphs = {.replayed = 3, .updated = 2, .captured = 1, .separate = 4};
  log.step({2, 1.0, 64, with_graphs});

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
  EXPECT_EQ(all[0].find("device_graphs"), nullptr);
  EXPECT_EQ(all[3].at("device_graphs").dump(),
            R"({"replayed":3,"updated":2,"captured":1,"separate":4})");
}

/// The numbers of the steps that had a log line.
std::string lines_of(RunLog::TrainingOptions options, std::int64_t first, std::int64_t last) {
  ScratchFiles const files;
  RunLog log(files.directory(), RunLog::Role::writer);
  log.begin_training(options);
  ::testing::internal::CaptureStderr();
  for (std::int64_t step = first; step <= last; ++step) {
    log.step({step, 0.0, 0, outcome(4.0)});
    log.end_step();
  }
  std::istringstream text(::testing::internal::GetCapturedStderr());
  std::string out;
  for (std::string word; text >> word;)
    if (auto const slash = word.find("/9"); slash != std::string::npos)
      out += word.substr(0, slash) + " ";
  return out;
}

TEST(RunLog, HasALineForTheFirstStepThenByLoggingStepsAndForTheLast) {
  EXPECT_EQ(lines_of({.total_steps = 9, .logging_steps = 4}, 1, 9), "1 4 8 9 ");
  EXPECT_EQ(lines_of({.total_steps = 9, .logging_steps = 500}, 3, 9), "3 9 ") << "resumed";
}

TEST(RunLog, HasLinesAsTheStrategySays) {
  using config::Interval;
  auto const with = [](Interval strategy, std::int64_t print) {
    RunLog::TrainingOptions options{.total_steps = 9, .logging_steps = 2};
    options.longest_silence = std::chrono::milliseconds(0);
    options.strategy = strategy;
    options.steps_per_epoch = 4;
    options.steps_per_print = print;
    return lines_of(options, 1, 9);
  };
  EXPECT_EQ(with(Interval::no, 0), "");
  EXPECT_EQ(with(Interval::no, 3), "3 6 9 ");
  EXPECT_EQ(with(Interval::epoch, 0), "4 8 9 ");
  EXPECT_EQ(with(Interval::epoch, 3), "3 4 6 8 9 ");
}

/// The text of the line of step 2.
std::string line_after_nan(bool filter, double second) {
  ScratchFiles const files;
  RunLog log(files.directory(), RunLog::Role::writer);
  RunLog::TrainingOptions options{.total_steps = 9, .logging_steps = 3, .tokens_per_sample = 16};
  options.filter_nonfinite = filter;
  log.begin_training(options);
  log.step({1, 0.0, 0, outcome(8.0)});
  ::testing::internal::CaptureStderr();
  log.step({2, 0.0, 0, outcome(NAN)});
  log.step({3, 0.0, 0, outcome(second)});
  return ::testing::internal::GetCapturedStderr();
}

TEST(RunLog, LeavesNonFiniteLossesOutOfItsLines) {
  EXPECT_THAT(line_after_nan(true, 4.0), ::testing::HasSubstr("loss 4.0000"));
  EXPECT_THAT(line_after_nan(false, 4.0), ::testing::HasSubstr("loss NaN"));
  EXPECT_THAT(line_after_nan(true, NAN), ::testing::HasSubstr("loss NaN")) << "nothing else";
}

TEST(RunLog, WritesTimesMonitorsAndInputTokens) {
  ScratchFiles const files;
  RunLog log(files.directory(), RunLog::Role::writer);
  config::Reporting reporting;
  reporting.csv = files.directory() / "csv";
  reporting.trainer_tensorboard = files.directory() / "runs";
  log.open_metrics(1);
  log.open_monitors(reporting, {1, 0});
  RunLog::TrainingOptions options{.total_steps = 2, .logging_steps = 1};
  options.counts_input_tokens = true;
  log.begin_training(options);
  auto timed = outcome(4.0);
  timed.phases = PhaseTimes{0.001, 0.010, 0.020, 0.005, {}};
  ::testing::internal::CaptureStderr();
  log.step({1, 0.5, 32, timed, 0, 2});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("time of step 1 (ms): data 1.00 | forward 10.00 | backward "
                                   "20.00 | step 5.00"));
  EXPECT_EQ(records(files.directory()).at(0).at("num_input_tokens_seen").as_int(), 32);
  std::ifstream csv(reporting.csv / "Train_Samples_elapsed_time_ms_forward.csv");
  std::string header, row;
  std::getline(csv, header), std::getline(csv, row);
  EXPECT_EQ(row, "2,10.0");
  EXPECT_FALSE(std::filesystem::is_empty(reporting.trainer_tensorboard));
}

TEST(RunLog, IsNotSilentForLong) {
  using namespace std::chrono_literals;
  EXPECT_EQ(lines_of({.total_steps = 9, .logging_steps = 500, .longest_silence = 0ms}, 1, 9),
            "1 2 3 4 5 6 7 8 9 ");
}

TEST(RunLog, EndsWithASummary) {
  ScratchFiles const files;
  files.write("model.safetensors", std::string(2048, 'x'));
  std::filesystem::create_directories(files.directory() / "checkpoints/step_00000002");
  files.write("eval_results.json", "{}");
  RunLog log(files.directory(), RunLog::Role::writer);
  ::testing::internal::CaptureStderr();
  log.summary();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "nothing was trained";
  log.begin_training({.total_steps = 9, .logging_steps = 500, .tokens_per_sample = 1024});
  log.step({1, 0.0, 0, outcome(4.0)});
  auto last = outcome(3.0);
  last.update.skipped = false;
  log.step({2, 0.0, 0, last});
  ::testing::internal::CaptureStderr();
  log.summary();
  auto const text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::HasSubstr("trained 2 steps (1 skipped) in "));
  EXPECT_THAT(text,
              ::testing::HasSubstr(
                  "4,096 tokens, 4096 tokens/s, loss 3.0000 in the last step, 3.5000 on average"));
  EXPECT_THAT(text, ::testing::HasSubstr("files in " + files.directory().string() +
                                         ": checkpoints (1), the model (2.0 KiB), "
                                         "eval_results.json"));
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
