/// A job from its arguments to its files, in this process: set-up, training, resume, export.
#include "tessera/train/loop/trainer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "mpi_test.hpp"
#include "small_run.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/train/setup/training_setup.hpp"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

/// Job whose ranks share one directory.
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

TEST_F(Job, PredictsOnTheTestFile) {
  auto only =
      arguments("predicted", {"--do_predict", "--do_train", "false", "--test_file",
                              (directory / "text.txt").string(), "--max_predict_samples", "5"});
  EXPECT_EQ(train(only).code, ExitCode::done);
  if (comm->rank() != 0) return;
  auto const results = ConfigTree::read(directory / "predicted/predict_results.json");
  EXPECT_NEAR(results.at("predict_loss").as_double(), std::log(4096.0), 0.3) << "random weights";
  EXPECT_EQ(results.at("predict_samples").as_int(), 5);
}

/// Evaluation without training: the weights of a checkpoint, of another stage and precision.
TEST_F(Job, EvaluatesACheckpointWithWeightsOnly) {
  EXPECT_EQ(train(arguments("run", {"--do_eval"})).code, ExitCode::done);
  auto const trained = ConfigTree::read(directory / "run/eval_results.json");
  if (comm->rank() == 0) files.write("ds.json", "{\"zero_optimization\": {\"stage\": 3}}");
  comm->barrier();
  for (auto const& [name, more] :
       {std::pair<char const*, std::vector<std::string>>{"stage3", {}}, {"bf16", {"--bf16"}}}) {
    auto words = more;
    words.insert(words.end(), {"--do_eval", "--do_train", "false", "--resume_from_checkpoint",
                               (directory / "run/checkpoints/step_00000006").string(),
                               "--deepspeed", (directory / "ds.json").string()});
    auto const of = arguments(name, words);
    StatusFile status({}, ConfigTree::object());
    {
      TrainingSetup setup({of, test::session(), *comm, status});
      setup.resolve();
      auto const run = setup.build();
      auto const memory = run.weights->memory();
      EXPECT_GT(memory.weights, 0u);
      EXPECT_EQ(memory.gradients + memory.master_weights + memory.optimizer_state, 0u);
      EXPECT_EQ(run.engine, nullptr);
      comm->barrier();
    }
    EXPECT_EQ(train(of).code, ExitCode::done);
    auto const results = ConfigTree::read(directory / name / "eval_results.json");
    EXPECT_NEAR(results.at("eval_loss").as_double(), trained.at("eval_loss").as_double(),
                more.empty() ? 1e-6 : 0.02);
    comm->barrier();
  }
}

/// Cross-entropy in double precision, times a factor.
struct ScaledLoss : model::LogitLoss {
  double factor = 1.0;
  int chunks = 0;
  void compute(memory::Queue&, model::LogitChunk const& chunk) override {
    ++chunks;
    auto const rows = chunk.targets.numel(), stride = chunk.logits.dim(1);
    auto const* const targets = chunk.targets.as<std::int32_t>();
    for (std::int64_t r = 0; r < rows; ++r) {
      float* const logits = chunk.logits.as<float>() + r * stride;
      double sum = 0.0;
      for (std::int64_t v = 0; v < chunk.vocabulary; ++v) sum += std::exp(logits[v]);
      bool const counts = targets[r] >= 0;
      chunk.losses.as<float>()[r] =
          counts ? static_cast<float>(factor * (std::log(sum) - logits[targets[r]])) : 0.0f;
      if (chunk.dlogits.empty()) continue;
      for (std::int64_t v = 0; v < chunk.vocabulary; ++v)
        chunk.dlogits.as<float>()[r * stride + v] =
            counts ? static_cast<float>((std::exp(logits[v]) / sum - (v == targets[r])) * factor *
                                        chunk.gradient_scale)
                   : 0.0f;
    }
  }
};

/// Replaces every part.
struct OwnTrainer : Trainer {
  using Trainer::Trainer;
  std::unique_ptr<model::CausalLm> create_model(ConfigTree const& config,
                                                model::ModelOptions const& options) override {
    calls.insert("model");
    return Trainer::create_model(config, options);
  }
  TrainingData create_data(ModelSource const&, model::CausalLm const&) override {
    calls.insert("data");
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < 40 * 8; ++i) ids.push_back(i % 7);
    TrainingData data;
    data.train.emplace(ids, 8);
    data.evaluation.emplace(std::move(ids), 8);
    data.evaluation->keep_first(6);
    data.identity = ConfigTree::object();
    return data;
  }
  optim::OptimizerSpec create_optimizer(config::ResolvedConfig const&) override {
    calls.insert("optimizer");
    return optim::make_spec("SGD");
  }
  optim::Schedule create_schedule(config::ResolvedConfig const&, std::int64_t) override {
    calls.insert("schedule");
    return [](std::int64_t) { return 0.25; };
  }
  model::LogitLoss* compute_loss(ModelContext const&, model::Batch const& batch) override {
    EXPECT_EQ(batch.sequence, 8);
    return &loss;
  }
  StepOutcome training_step(std::int64_t step,
                            std::function<StepOutcome()> const& standard) override {
    calls.insert("training_step");
    losses.push_back(standard().loss);
    StepOutcome out;
    out.loss = losses.back();
    out.tokens = step;
    out.samples = 1;
    return out;
  }
  double prediction_step(ModelContext const&, model::Batch const& batch) override {
    calls.insert("prediction_step");
    return 2.0 * static_cast<double>(batch.rows * (batch.sequence - 1));
  }
  EvaluationResult evaluate(Evaluator& evaluator) override {
    calls.insert("evaluate");
    return Trainer::evaluate(evaluator);
  }
  void log(std::int64_t, StepOutcome const& outcome) override {
    calls.insert("log");
    logged += outcome.tokens;
  }

  ScaledLoss loss;
  std::set<std::string> calls;
  std::vector<double> losses;
  std::int64_t logged = 0;
};

struct Counter : TrainerCallback {
  void on_train_begin(TrainingRun const&) override { ++begins; }
  void on_step_end(std::int64_t step, StepOutcome const&) override { last = step; }
  void on_evaluate(std::int64_t, EvaluationResult const& result) override { loss = result.loss; }
  void on_train_end(TrainingRun const&) override { ++ends; }
  int begins = 0, ends = 0;
  std::int64_t last = 0;
  double loss = 0.0;
};

TEST_F(Job, ADerivedTrainerReplacesEveryPart) {
  std::vector<double> losses[2];
  for (double const factor : {1.0, 2.0}) {
    auto const of = arguments(concat("own", factor),
                              {"--do_eval", "--save_strategy", "no", "--max_grad_norm", "0"});
    StatusFile status(comm->rank() == 0 ? of.output_dir : fs::path(), ConfigTree::object());
    OwnTrainer trainer({of, test::session(), *comm, status});
    trainer.loss.factor = factor;
    auto const counter = std::make_shared<Counter>();
    trainer.add_callback(counter);
    EXPECT_EQ(trainer.run().code, ExitCode::done);
    EXPECT_EQ(trainer.calls,
              (std::set<std::string>{"model", "data", "optimizer", "schedule", "training_step",
                                     "prediction_step", "evaluate", "log"}));
    EXPECT_GE(trainer.loss.chunks, 6);
    EXPECT_EQ(trainer.logged, 1 + 2 + 3 + 4 + 5 + 6);
    EXPECT_EQ(counter->begins + counter->ends, 2);
    EXPECT_EQ(counter->last, 6);
    EXPECT_EQ(counter->loss, 2.0);
    losses[factor == 2.0] = trainer.losses;
    comm->barrier();
  }
  EXPECT_NEAR(losses[0][0], std::log(4096.0), 0.3) << "random weights";
  EXPECT_LT(losses[0][5], losses[0][0] - 0.5) << "it learns seven tokens";
  EXPECT_NEAR(losses[1][0], 2.0 * losses[0][0], 1e-4);
  EXPECT_LT(losses[1][1] / 2.0, losses[0][1]) << "twice the gradient";
}

}  // namespace
}  // namespace tessera::train
