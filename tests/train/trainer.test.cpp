/// A job from its arguments to its files, in this process: set-up, training, resume, export.
#include "tessera/train/trainer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "mpi_test.hpp"
#include "small_run.hpp"
#include "tessera/comm/host_collectives.hpp"
#include "tessera/train/training_setup.hpp"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

/// The same directory on every rank.
struct Job : ::testing::Test {
  Job() {
    directory = comm::broadcast_bytes(*comm, files.directory().string(), 0);
    if (comm->rank() == 0) files.write("text.txt", test::small_text(1000));
  }
  ~Job() override { comm->barrier(); }

  config::TrainingArguments arguments(std::string const& output,
                                      std::vector<std::string> const& more = {}) const {
    std::vector<std::string> words{"--model_type",
                                   "gpt2",
                                   "--config_overrides",
                                   "n_embd=16,n_layer=1,n_head=2,vocab_size=4096,n_positions=32",
                                   "--tokenizer_name",
                                   test::tokenizer_directory().string(),
                                   "--train_file",
                                   (directory / "text.txt").string(),
                                   "--block_size",
                                   "16",
                                   "--do_train",
                                   "--max_steps",
                                   "6",
                                   "--per_device_train_batch_size",
                                   "2",
                                   "--save_steps",
                                   "3",
                                   "--output_dir",
                                   (directory / output).string()};
    words.insert(words.end(), more.begin(), more.end());
    return config::parse_arguments(words);
  }
  Outcome train(config::TrainingArguments const& of, Deadline deadline = {}) {
    StatusFile status(comm->rank() == 0 ? of.output_dir : fs::path(), ConfigTree::object());
    Trainer trainer({of, test::session(), *comm, status});
    trainer.set_deadline(deadline);
    auto const outcome = trainer.run();
    comm->barrier();
    return outcome;
  }
  std::vector<double> losses(std::string const& output) const {
    std::vector<double> out;
    std::ifstream in(directory / output / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
      if (auto const record = ConfigTree::parse(line, "metrics"); record.contains("loss"))
        out.push_back(record.at("loss").as_double());
    return out;
  }

  ScratchFiles files;
  std::unique_ptr<comm::Collectives> comm =
      comm::make_mpi(test::session(), std::chrono::seconds(60));
  fs::path directory;
};

TEST_F(Job, StoppedByItsDeadlineAndResumedItTrainsAsIfUninterrupted) {
  auto const done = train(arguments("full"));
  EXPECT_EQ(done.code, ExitCode::done);
  EXPECT_EQ(losses("full").size(), 6u);
  EXPECT_TRUE(fs::exists(directory / "full/model.safetensors"));
  EXPECT_TRUE(fs::exists(directory / "full/train_results.json"));

  auto const now = Deadline::Clock::now();
  auto const early = train(arguments("stopped"), {now, now});
  EXPECT_EQ(early.code, ExitCode::stopped_early);
  EXPECT_EQ(losses("stopped").size(), 1u);
  EXPECT_FALSE(fs::exists(directory / "stopped/model.safetensors"));
  EXPECT_EQ(train(arguments("stopped")).code, ExitCode::done);
  EXPECT_EQ(losses("stopped"), losses("full"));
}

TEST_F(Job, ASetupFindsWhatTheLastAttemptLeft) {
  StatusFile status({}, ConfigTree::object());
  std::string run_id;
  {
    auto const first = arguments("run", {"--max_grad_norm", "0.5"});
    TrainingSetup setup({first, test::session(), *comm, status});
    EXPECT_EQ(setup.resolve().max_grad_norm, 0.5);
    auto const run = setup.build();
    EXPECT_EQ(run.state.first_step, 1);
    EXPECT_EQ(run.resumed_step, -1);
    EXPECT_EQ(run.sampler->total_steps(), 6);
    EXPECT_EQ(run.data.train->length(), 16);
    EXPECT_EQ(run.lock != nullptr, comm->rank() == 0);
    EXPECT_FALSE(run.state.run_id.empty());
    comm->barrier();
  }
  train(arguments("run"));
  auto const again = arguments("run", {"--max_steps", "9"});
  TrainingSetup setup({again, test::session(), *comm, status});
  setup.resolve();
  auto const run = setup.build();
  EXPECT_EQ(run.state.first_step, 7);
  EXPECT_EQ(run.resumed_step, 6);
  EXPECT_EQ(run.state.applied_steps, 6);
  EXPECT_EQ(run.engine->optimizer_steps(), 6);
  EXPECT_EQ(run.state.samples, 12 * comm->size());
  EXPECT_FALSE(run.starts_over);
  comm->barrier();
}

/// Higher is declared better, so that the first evaluated checkpoint is the best one.
TEST_F(Job, ExportsTheBestCheckpointAndKeepsIt) {
  auto const best =
      arguments("best", {"--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps",
                         "2", "--save_steps", "2", "--save_total_limit", "1", "--greater_is_better",
                         "--learning_rate", "1e-2", "--report_to", "tensorboard"});
  EXPECT_EQ(train(best).code, ExitCode::done);
  if (comm->rank() != 0) return;
  EXPECT_TRUE(fs::exists(directory / "best/checkpoints/step_00000002")) << "the best one";
  EXPECT_FALSE(fs::exists(directory / "best/checkpoints/step_00000004"));
  EXPECT_TRUE(fs::exists(directory / "best/checkpoints/step_00000006")) << "the newest one";
  std::vector<double> evaluated;
  std::ifstream in(directory / "best/metrics.jsonl");
  for (std::string line; std::getline(in, line);)
    if (auto const record = ConfigTree::parse(line, "metrics"); record.contains("eval_loss"))
      evaluated.push_back(record.at("eval_loss").as_double());
  ASSERT_EQ(evaluated.size(), 4u);
  EXPECT_EQ(evaluated.back(), evaluated.front()) << "the exported weights are those of step 2";
  EXPECT_NE(evaluated[1], evaluated.front());
  EXPECT_FALSE(fs::is_empty(directory / "best/runs"));
}

TEST_F(Job, EvaluatesWithoutTraining) {
  auto only = arguments("evaluated", {"--do_eval", "--do_train", "false"});
  EXPECT_EQ(train(only).code, ExitCode::done);
  if (comm->rank() != 0) return;
  auto const results = ConfigTree::read(directory / "evaluated/eval_results.json");
  EXPECT_NEAR(results.at("eval_loss").as_double(), std::log(4096.0), 0.3) << "random weights";
  EXPECT_FALSE(fs::exists(directory / "evaluated/checkpoints"));
}

}  // namespace
}  // namespace tessera::train
