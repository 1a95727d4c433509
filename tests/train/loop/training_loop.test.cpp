#include "tessera/train/loop/training_loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <limits>

#include "small_run.hpp"
#include "tessera/core/error.hpp"
#include "tessera/train/report/run_lock.hpp"

namespace tessera::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

data::Sampler sampler() {
  data::SamplerConfig config;
  config.samples = 8;
  config.micro_batch = 2;
  config.epochs = 2;
  return data::Sampler(config);
}

/// Eight steps, two epochs of four.
struct Loop : ::testing::Test {
  Loop() {
    sequences.keep_first(8);
    log.open_metrics(1);
    log.begin_training({.total_steps = plan.total_steps(), .tokens_per_sample = 16});
    options.tokens_per_sample = 16;
    options.output_dir = run.files.directory().string();
    options.save.total_steps = options.evaluate.total_steps = plan.total_steps();
    options.save.steps_per_epoch = options.evaluate.steps_per_epoch = plan.steps_per_epoch();
  }
  TrainingLoop loop() {
    return {options,
            {*run.comm, step, plan, schedule, state, &evaluator, saves, log, status, deadline,
             stop_check, [this] { return requests(); }}};
  }
  checkpoint::SaveRequest save_request(std::int64_t of_step) const {
    return run.save_request(run.files.directory(), of_step);
  }
  /// "1", "2", "2e" for an evaluation, "4s" for a save.
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    std::ifstream in(run.files.directory() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      auto const record = ConfigTree::parse(line, "metrics");
      out.push_back(std::to_string(record.at("step").as_int()) + (record.contains("eval_loss") ? "e"
                                                                  : record.contains("checkpoint")
                                                                      ? "s"
                                                                      : ""));
    }
    return out;
  }

  /// A hidden unit that is off (GELU of -1e20 is 0) and has a gradient of 0 times infinity.
  void spoil_gradient(zero::StateView& view) const {
    auto const& plan = run.engine->plan();
    for (auto const& extent : plan.extents(first_rank)) {
      auto const& name =
          plan.unit(extent.unit).parameters[static_cast<std::size_t>(extent.parameter)].name;
      float* const values = view.unit_shards[position(extent.unit)] +
                            plan.unit(extent.unit).shard_offset(extent.partition_offset).value();
      if (name == "transformer.h.1.mlp.c_fc.bias") values[5] = -1e20f;
      for (std::int64_t row = 0; name == "transformer.h.1.mlp.c_fc.weight" && row < 16; ++row)
        values[row * 64 + 5] = 0.0f;
    }
  }

  test::SmallRun run;
  data::TokenSequences sequences = test::small_sequences(run.files, 16);
  data::Sampler plan = sampler();
  optim::Schedule schedule = [this](std::int64_t s) { return rates.push_back(s), 1e-3; };
  std::vector<std::int64_t> rates;  ///< steps that a learning rate was asked for
  TrainingState state;
  StatusFile status{run.files.directory(), ConfigTree::object()};
  RunLog log{run.files.directory(), RunLog::Role::writer};
  Deadline deadline;
  SavePolicy saves{{.async = config::AsyncSave::off, .total_steps = 8},
                   {*run.comm, *run.engine, status, log, deadline},
                   [this](std::int64_t of_step, SaveContent) { return save_request(of_step); }};
  TrainingStep step{run.context(),
                    *run.engine,
                    sequences,
                    {.micro_batch_size = 2, .between_layers = [this] { stop_check.ask(); }}};
  std::int64_t layers_until_stop = 1 << 30;
  StopCheck stop_check{*run.comm, [this] { return layers_until_stop-- <= 0 ? SIGTERM : 0; }};
  Evaluator evaluator{run.context(), sequences, 4};
  TrainingLoop::Options options;
  std::function<StepRequests()> requests = [] { return StepRequests{}; };
};

TEST_F(Loop, RunsAllStepsAndCountsThem) {
  auto const outcome = loop().run();
  EXPECT_EQ(outcome.code, ExitCode::done);
  EXPECT_THAT(events(), ElementsAre("1", "2", "3", "4", "5", "6", "7", "8"));
  EXPECT_THAT(rates, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(state.applied_steps, 8);
  EXPECT_EQ(state.samples, 16);
  EXPECT_EQ(state.tokens, 16 * 16);
  status.finish({StatusFile::State::done, 0, "finished", -1, ""});
  EXPECT_EQ(ConfigTree::read(run.files.directory() / "status.json").at("step").as_int(), 8);
}

TEST_F(Loop, EvaluatesAndSavesInTurn) {
  options.evaluate.interval = config::Interval::epoch;
  options.evaluate_on_start = true;
  options.save.interval = config::Interval::steps;
  options.save.every = 3;
  loop().run();
  EXPECT_THAT(events(),
              ElementsAre("0e", "1", "2", "3", "3s", "4", "4e", "5", "6", "6s", "7", "8", "8s"))
      << "the evaluation after the last step belongs to the caller";
  EXPECT_EQ(saves.last_saved_step(), 8);
}

/// The loss of this text falls with every step, so that higher is worse.
TEST_F(Loop, SavesTheBestAndStopsEarly) {
  options.evaluate.interval = config::Interval::steps;
  options.evaluate.every = 1;
  options.save.interval = config::Interval::best;
  options.best = BestModel::Options{.better = BestModel::Better::higher, .patience = 3};
  EXPECT_EQ(loop().run().code, ExitCode::done);
  EXPECT_EQ(state.best.step, 1);
  EXPECT_EQ(state.best.saved_step, 1);
  EXPECT_THAT(events(), ElementsAre("1", "1e", "1s", "2", "2e", "3", "3e", "4", "4e", "4s"))
      << "three evaluations without a better one, and a checkpoint of the end";
  state.first_step = 5;
  EXPECT_EQ(loop().run().code, ExitCode::done);
  EXPECT_THAT(events(), ::testing::SizeIs(10)) << "the same command again trains no further";
}

/// transformers 5.24, Trainer._save_checkpoint: best_model_checkpoint is the checkpoint of the best
/// step if that step was saved; otherwise it stays.
TEST_F(Loop, TheBestSavedStepIsKeptWhenABetterOneIsNotSaved) {
  options.evaluate.interval = options.save.interval = config::Interval::steps;
  options.evaluate.every = 1;
  options.save.every = 3;
  options.best = BestModel::Options{};
  std::vector<double> const losses{3.0, 2.5, 2.0, 1.0, 1.8, 1.5, 1.9, 1.95};
  options.evaluation = [&](std::int64_t at) {
    return EvaluationResult{.loss = losses[static_cast<std::size_t>(at - 1)]};
  };
  loop().run();
  EXPECT_EQ(state.best.step, 4);
  EXPECT_EQ(state.best.saved_step, 3);
}

TEST_F(Loop, EvaluatesTheLastStepWhereTheBestIsWanted) {
  options.evaluate.interval = options.save.interval = config::Interval::epoch;
  options.evaluate.delay = 1.5;
  options.best = BestModel::Options{};
  loop().run();
  EXPECT_THAT(events(), ElementsAre("1", "2", "3", "4", "4s", "5", "6", "7", "8", "8e", "8s"));
  EXPECT_EQ(state.best.step, 8);
}

TEST_F(Loop, BeginsWhereTheStateSays) {
  options.evaluate_on_start = true;
  state.first_step = 7;
  state.applied_steps = 5;  // one of the six was skipped
  loop().run();
  EXPECT_THAT(events(), ElementsAre("7", "8"));
  EXPECT_THAT(rates, ElementsAre(6, 7));
}

TEST_F(Loop, StopsWithACheckpointOfTheStep) {
  requests = [this] { return StepRequests{.stop = state.samples == 6 ? SIGTERM : 0}; };
  auto const outcome = loop().run();
  EXPECT_EQ(outcome.code, ExitCode::stopped_early);
  EXPECT_EQ(outcome.reason,
            "stopped by SIGTERM after step 3 of 8; run the same command again to resume");
  EXPECT_THAT(events(), ElementsAre("1", "2", "3", "3s"));
}

TEST_F(Loop, StopsBetweenTwoLayersWithACheckpointOfTheLastCompleteStep) {
  layers_until_stop = 3 * 5 + 2;  // five layers per step
  auto const outcome = loop().run();
  EXPECT_EQ(outcome.code, ExitCode::stopped_early);
  EXPECT_EQ(outcome.reason,
            "stopped by SIGTERM after step 3 of 8; run the same command again to resume");
  EXPECT_THAT(events(), ElementsAre("1", "2", "3", "3s"));
  EXPECT_EQ(state.samples, 6) << "those of the incomplete step do not count";
}

TEST_F(Loop, HasNoCheckpointWhenItStopsInTheFirstStep) {
  layers_until_stop = 2;
  auto const outcome = loop().run();
  EXPECT_EQ(outcome.code, ExitCode::stopped_early);
  EXPECT_EQ(outcome.reason,
            "stopped by SIGTERM before step 1 of 8 was complete, so that no checkpoint exists; run "
            "the same command again to start");
  EXPECT_THAT(events(), ElementsAre());
}

TEST_F(Loop, AResumeRepeatsTheEvaluationThatWasStopped) {
  options.evaluate.interval = options.save.interval = config::Interval::steps;
  options.evaluate.every = options.save.every = 3;
  options.best = BestModel::Options{};
  bool stops = true;
  options.evaluation = [&](std::int64_t at) {
    if (stops) throw StopBetweenLayers{SIGTERM};
    return EvaluationResult{.loss = static_cast<double>(at)};
  };
  EXPECT_EQ(loop().run().reason,
            "stopped by SIGTERM after step 3 of 8; run the same command again to resume");
  EXPECT_TRUE(state.evaluation_interrupted) << "the checkpoint says so";
  state.first_step = 4;
  EXPECT_EQ(loop().run().code, ExitCode::stopped_early) << "stopped again, without a step";
  EXPECT_THAT(events(), ElementsAre("1", "2", "3", "3s"));
  stops = false;
  loop().run();
  EXPECT_FALSE(state.evaluation_interrupted);
  EXPECT_EQ(state.best.saved_step, 3) << "its checkpoint is the one of the stop";
  EXPECT_THAT(events(), ElementsAre("1", "2", "3", "3s", "3e", "4", "5", "6", "6e", "6s", "7", "8",
                                    "8e", "8s"));
}

TEST_F(Loop, SaysWhenTheCheckpointOfAStopIsMissing) {
  run.files.write("checkpoints", "a file where the directory belongs");
  requests = [] { return StepRequests{.stop = SIGTERM}; };
  auto const outcome = loop().run();
  EXPECT_THAT(outcome.reason, HasSubstr("could not be written, and there is no other"));
  EXPECT_EQ(outcome.code, ExitCode::io) << "75 promises a checkpoint";
}

TEST_F(Loop, SavesOnRequestOncePerStep) {
  options.save.interval = config::Interval::steps;
  options.save.every = 2;
  requests = [] { return StepRequests{.save = true}; };
  loop().run();
  EXPECT_THAT(events(), ElementsAre("1", "1s", "2", "2s", "3", "3s", "4", "4s", "5", "5s", "6",
                                    "6s", "7", "7s", "8", "8s"));
}

TEST_F(Loop, EndsWhenTheDirectoryIsLost) {
  requests = [] { return StepRequests{.lock_lost = true}; };
  EXPECT_THROW(loop().run(), DirectoryInUse);
}

/// A gradient that is not finite although the loss is: no update, and no checkpoint of it counts.
TEST_F(Loop, EndsWhenNoUpdateIsApplied) {
  options.save.interval = config::Interval::steps;
  options.save.every = 2;
  for (auto& view : run.engine->state())
    if (view.name == "fp32") spoil_gradient(view);
  run.engine->load_state(0, {});
  auto const before = run.engine->state()[0].unit_shards[0][0];
  try {
    loop().run();
    FAIL() << "a run without an update";
  } catch (ConfigError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("all 8 steps were skipped"));
    EXPECT_THAT(e.what(), HasSubstr("the checkpoint of step 8 is complete"));
  }
  EXPECT_EQ(run.engine->state()[0].unit_shards[0][0], before);
  EXPECT_EQ(state.applied_steps, 0);
  EXPECT_EQ(state.skipped_in_a_row, 8);
  options.updates.max_skipped_steps = 3;
  state = {};
  EXPECT_THROW(loop().run(), ConfigError);
  EXPECT_EQ(state.skipped_in_a_row, 4);
}

TEST_F(Loop, EndsWhenTheLossIsNotFinite) {
  for (auto& view : run.engine->state())
    if (view.name == "fp32") view.unit_shards[0][0] = std::numeric_limits<float>::quiet_NaN();
  run.engine->load_state(0, {});
  try {
    loop().run();
    FAIL() << "a loss that is not a number";
  } catch (ConfigError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("the loss of step"));
    EXPECT_THAT(e.what(), HasSubstr("diverged"));
    EXPECT_THAT(e.what(), HasSubstr("no checkpoint has been written yet"));
  }
}

}  // namespace
}  // namespace tessera::train
