#pragma once
/// The job of tessera-train: sets up a run, then trains, evaluates and generates.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/model/families/registry.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/train/setup/training_run.hpp"
#include "tessera/train/step/deadline.hpp"
#include "tessera/train/step/evaluator.hpp"
#include "tessera/train/step/outcome.hpp"

namespace tessera::train {

struct PartMakers;
class PassTimer;
class Preference;
class ReferenceModel;
class RunLog;
class StopCheck;

/// Learns of the events of a run, on every rank. What it throws ends the run.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  virtual void on_train_begin(TrainingRun const& run) { (void)run; }
  virtual void on_step_end(std::int64_t step, StepOutcome const& outcome) {
    (void)step, (void)outcome;
  }
  virtual void on_evaluate(std::int64_t step, EvaluationResult const& result) {
    (void)step, (void)result;
  }
  virtual void on_train_end(TrainingRun const& run) { (void)run; }
};

/// A derived class replaces parts of the job: docs/how-to/own-trainer.md. The virtual functions are
/// called on every rank and must agree on all.
class Trainer {
 public:
  /// Collective over all ranks of job.comm.
  explicit Trainer(JobContext const& job);
  virtual ~Trainer();
  Trainer(Trainer const&) = delete;
  Trainer& operator=(Trainer const&) = delete;

  /// The end of the job's time; the run saves and ends with 75 before it. Rank 0's counts.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  void add_callback(std::shared_ptr<TrainerCallback> callback) {
    callbacks_.push_back(std::move(callback));
  }
  /// Once. @return done; stopped_early or io after a stop request; io when the last checkpoint is
  /// missing
  Outcome run();

 protected:
  JobContext const& job() const { return job_; }

  /// @param config of Hugging Face's form  @param options dtypes, adapters and head
  virtual std::unique_ptr<model::CausalLm> create_model(ConfigTree const& config,
                                                        model::ModelOptions const& options);
  /// The samples to train on and to evaluate; the tokenizer where there is one.
  virtual TrainingData create_data(ModelSource const& source, model::CausalLm const& model);
  virtual optim::OptimizerSpec create_optimizer(config::ResolvedConfig const& config);
  /// The learning rate of each optimizer step.
  virtual optim::Schedule create_schedule(config::ResolvedConfig const& config, std::int64_t steps);
  /// The loss of a training micro-batch; it stays valid until the next call. Null: cross-entropy of
  /// the next token.
  virtual model::LogitLoss* compute_loss(ModelContext const& context, model::Batch const& batch);
  /// One optimizer step. @param standard  the step of tessera-train: micro-steps and update
  virtual StepOutcome training_step(std::int64_t step,
                                    std::function<StepOutcome()> const& standard);
  /// Sum of the token losses of an evaluation batch.
  virtual double prediction_step(ModelContext const& context, model::Batch const& batch);
  /// During and after the training, and of --do_eval.
  virtual EvaluationResult evaluate(Evaluator& evaluator);
  /// Evaluates the test set of --do_predict.
  virtual EvaluationResult predict(Evaluator& evaluator);
  /// After the log line of a step, before the callbacks.
  virtual void log(std::int64_t step, StepOutcome const& outcome);

 private:
  void open_run_files(TrainingRun const& run, RunLog& log) const;
  /// What the training loop calls between and inside its steps.
  struct Between {
    StopCheck& stop_check;
    Evaluator* evaluator;  ///< null: no evaluation
  };
  PartMakers makers();
  std::unique_ptr<Evaluator> make_evaluator(TrainingRun const& run,
                                            std::optional<data::TokenSequences> const& data,
                                            StopCheck& stop_check);
  /// Makes the losses of the data sets of a training on preferences. Collective.
  void prepare_preferences(TrainingRun& run);
  /// The loss of the pairs of a data set; null where the run has another task.
  Preference* preference_of(std::optional<data::TokenSequences> const& data) const;
  /// Continues the prompts of --eval_prompts, then evaluates.
  EvaluationResult evaluate_and_report(std::int64_t step, TrainingRun const& run, RunLog& log,
                                       Between const& between);
  Outcome train(TrainingRun& run, RunLog& log, Between const& between);
  Outcome run_evaluation(TrainingRun const& run, RunLog& log, Between const& between);
  Outcome run_prediction(TrainingRun const& run, RunLog& log, StopCheck& stop_check);
  void report_prefetch(zero::Engine const& engine);
  void report_graphs(std::int64_t step, memory::GraphLaunches const& launches);
  void report_step(TrainingRun const& run, std::int64_t step, StepOutcome const& outcome,
                   PassTimer const& timer);

  JobContext job_;
  std::optional<TrainingRun> run_;  ///< outlives what a derived class makes of its parts
  std::unique_ptr<ReferenceModel> reference_;
  std::map<std::optional<data::TokenSequences> const*, std::unique_ptr<Preference>>
      preferences_;  ///< by data set
  Deadline deadline_;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks_;
  std::optional<zero::PrefetchReport> reported_prefetch_;
  std::int64_t last_step_ = 0;  ///< last step of the training, once it has ended
  std::string unsaved_;  ///< why the run cannot end as done though its last step is; empty: it can
};

}  // namespace tessera::train
