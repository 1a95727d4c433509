#pragma once
/// The job of tessera-train: data, model, engine and checkpoints brought together; train, evaluate,
/// generate.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/save/saver.hpp"
#include "tessera/comm/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/data/sampler.hpp"
#include "tessera/data/text_dataset.hpp"
#include "tessera/data/tokenizer.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/model/causal_lm.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/train/deadline.hpp"
#include "tessera/train/model_source.hpp"
#include "tessera/train/run_directory.hpp"
#include "tessera/train/run_files.hpp"
#include "tessera/zero/engine.hpp"

namespace tessera::train {

/// How a job ended; errors are thrown.
struct Outcome {
  ExitCode code = ExitCode::done;
  std::string reason = "finished";
};

/// States that a checkpoint has of each parameter: fp32, exp_avg, exp_avg_sq.
inline constexpr std::size_t checkpoint_states = 3;

class Trainer {
 public:
  /// Collective over all ranks of @p comm; the referenced objects outlive the trainer.
  Trainer(config::TrainingArguments const& arguments, topology::MpiSession const& session,
          comm::Collectives& comm, StatusFile& status);
  ~Trainer();
  /// When the job's time is up; the run saves and ends with 75 before. Rank 0's counts.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  Outcome run();

 private:
  struct Losses;
  struct StepOutcome;

  void load_data();
  std::int64_t load_tokenizer();
  data::TokenSequences blocks_of(data::SequenceRequest const& request) const;
  void plan_steps();
  void build_engine();
  void start_weights();
  void open_run_files(bool starts_anew);
  void say_what_runs() const;

  Outcome train();
  Outcome stop_after(std::int64_t step, int request);
  StepOutcome train_step(std::int64_t step);
  void share_requests(StepOutcome& outcome);
  model::LossSum train_micro_batch(data::MicroBatch const& samples, std::int64_t first_global_row,
                                   model::PassSettings const& settings);
  void after_step(std::int64_t step, StepOutcome const& outcome);
  void check_loss(std::int64_t step, StepOutcome const& outcome);
  bool due(config::Interval strategy, double every, std::int64_t step) const;
  void evaluate(std::int64_t step);
  void generate();
  std::vector<std::int32_t> prompt_tokens() const;

  enum class SaveMode {
    wait,   ///< until the checkpoint is durable
    go_on,  ///< in the background, where the memory for that is there
  };
  enum class SaveContent {
    regular,  ///< what the options say: perhaps a model alone
    whole,    ///< a run can go on from it
  };
  void save_checkpoint(std::int64_t step, SaveMode mode, SaveContent content);
  bool saves_in_background();
  checkpoint::SaveRequest save_request(std::int64_t step, SaveContent content) const;
  /// When no rank's disk is at work: the next phase of the save in flight.
  void advance_save();
  /// Waits for the save in flight, if there is one.
  void finish_save();
  /// Runs a part of a save; a failure is counted and, when there are too many, thrown.
  void survive(std::int64_t step, std::function<void()> const& part);
  void checkpoint_done(checkpoint::SavedCheckpoint const& saved, std::int64_t step);
  ConfigTree trainer_state(std::int64_t step) const;
  ConfigTree resolved_config() const;
  void start_from(StartingPoint const& start);
  void restore(checkpoint::Manifest const& manifest);
  void name_run(checkpoint::Manifest const* resumed);
  void write_model();
  void copy_tokenizer() const;
  void write_train_results(double seconds);
  double epoch_of(std::int64_t step) const;

  bool is_root() const { return comm_.rank() == 0; }

  config::TrainingArguments const& arguments_;
  topology::MpiSession const& session_;
  comm::Collectives& comm_;
  StatusFile& status_;
  std::unique_ptr<memory::Queue> compute_;

  std::unique_ptr<RunLock> lock_;  ///< of the output directory, rank 0

  ModelSource source_;
  config::ResolvedConfig config_;
  std::shared_ptr<data::Tokenizer> tokenizer_;  ///< on one rank of each node
  std::optional<data::TokenSequences> train_blocks_, eval_blocks_;
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<model::CausalLm> model_;
  std::unique_ptr<zero::Engine> engine_;
  std::unique_ptr<checkpoint::Saver> saver_;  ///< reads engine_ and model_
  std::optional<bool> background_saves_;      ///< once decided
  optim::Schedule schedule_;
  std::vector<std::int32_t> tokens_;  ///< of the micro-batch at hand

  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Progress> progress_;
  std::string run_id_;           ///< kept over resumes
  ConfigTree resumed_from_;      ///< {"run_id", "step", "checkpoint"}; null: from the beginning
  std::int64_t first_step_ = 1;  ///< to run, after a resume
  std::int64_t last_saved_step_ = -1;  ///< of a whole checkpoint
  bool saves_model_alone_ = false;     ///< the save at hand
  std::int64_t applied_steps_ = 0;     ///< not skipped: where the learning-rate schedule stands
  std::int64_t save_failures_ = 0;     ///< in a row
  std::int64_t tokens_seen_ = 0, samples_seen_ = 0;
  double loss_since_line_ = 0.0;  ///< sum of step losses since the last line
  std::int64_t steps_since_line_ = 0, tokens_since_line_ = 0;
  double loss_of_run_ = 0.0;  ///< sum of step losses of this attempt
  std::chrono::steady_clock::time_point line_started_;
  Deadline deadline_;
  std::chrono::duration<double> saving_{
      0};  ///< time that training stood still for saves in this attempt
};

}  // namespace tessera::train
