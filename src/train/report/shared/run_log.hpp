#pragma once
/// What a run reports while it works: metrics.jsonl, the result files of run_clm.py, and the lines
/// on standard error: of the first step, then every logging_steps, and at least one per minute; or
/// as logging_strategy and steps_per_print say.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/save/save.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/reporting.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/train/report/metrics_file.hpp"
#include "tessera/train/report/monitors.hpp"
#include "tessera/train/report/progress.hpp"
#include "tessera/train/step/outcome.hpp"

namespace tessera::train {

/// Rank 0 writes; on the other ranks every call returns without an effect.
class RunLog {
 public:
  enum class Role { writer, silent };
  RunLog(std::filesystem::path output_dir, Role role);

  /// Creates metrics.jsonl, or drops its records from @p first_step on and, where it is repeated,
  /// the evaluation before it.
  void open_metrics(std::int64_t first_step, LastEvaluation last = LastEvaluation::kept);
  /// Opens the files that @p reporting names. @throws IoError
  void open_monitors(config::Reporting const& reporting, Monitors::Start const& start);

  struct TrainingOptions {
    std::int64_t total_steps = 0;
    std::int64_t logging_steps = 500;
    bool show_loss_scale = false;
    std::int64_t tokens_per_sample = 0;
    std::chrono::milliseconds longest_silence = std::chrono::minutes(1);
    config::Interval strategy = config::Interval::steps;
    std::int64_t steps_per_epoch = 1;
    std::int64_t steps_per_print = 0;  ///< further lines; 0: none
    bool filter_nonfinite = true;      ///< leave losses that are not finite out of a line's mean
    bool counts_input_tokens = false;  ///< write num_input_tokens_seen
  };
  void begin_training(TrainingOptions const& options);

  struct StepRecord {
    std::int64_t step = 0;
    double epoch = 0.0;
    std::int64_t tokens = 0;  ///< consumed so far
    StepOutcome outcome;
    std::int64_t skipped_steps = 0;  ///< skipped steps of the run so far
    std::int64_t samples = 0;        ///< consumed so far
  };
  /// A record in metrics.jsonl; also a log line when one is due, else the status line.
  void step(StepRecord const& record);
  /// Ends a step after its evaluation and save: when it had a log line, throughput counts from
  /// here.
  void end_step();
  void evaluation(std::int64_t step, double epoch, EvaluationResult const& result);
  /// Texts that the model of this step generated: records with prompt and text.
  void samples(std::int64_t step, std::vector<ConfigTree> const& records);
  /// Logs the result of --do_predict.
  void prediction(EvaluationResult const& result);
  enum class CheckpointKind { resumable, model_only };
  void checkpoint(std::int64_t step, checkpoint::SavedCheckpoint const& saved, CheckpointKind kind);

  struct TrainingEnd {
    double epoch = 0.0;
    double seconds = 0.0;
    std::int64_t steps = 0;  ///< steps of this attempt
    std::int64_t samples = 0;
    std::int64_t train_batch_size = 0;
    std::int64_t total_steps = 0, skipped_steps = 0;  ///< total steps and skipped steps of the run
  };
  /// train_results.json, and how many steps were skipped
  void training_results(TrainingEnd const& end);
  /// Two log lines at the end of a run that has trained: what it did, and the files it leaves.
  void summary();
  /// Marks the run as finished in W&B and MLflow.
  void end_run();

  /// Log lines; the status line is cleared first.
  void info(std::string const& message);
  void warning(std::string const& message);
  void error(std::string const& message);
  void clear_status_line();

 private:
  using Clock = std::chrono::steady_clock;
  bool line_is_due(std::int64_t step) const;
  std::string files_text() const;
  void write_metrics(StepRecord const& record, double tokens_per_second);
  void write_monitors(StepRecord const& record);
  void write_line(StepRecord const& record, double tokens_per_second);

  std::filesystem::path output_dir_;
  Role role_;
  std::optional<MetricsFile> metrics_;
  std::optional<Monitors> monitors_;
  std::optional<Progress> progress_;
  TrainingOptions options_;
  Clock::time_point line_started_;  ///< since when tokens_since_line_ counts
  double loss_since_line_ = 0.0;    ///< sum of step losses
  std::int64_t steps_since_line_ = 0, losses_since_line_ = 0, tokens_since_line_ = 0;
  bool had_line_ = false;
  /// Sums over the micro-steps since the last line.
  struct ExampleSums {
    double entropy = 0.0, accuracy = 0.0, micro_steps = 0.0;
    std::int64_t tokens = 0, positions = 0;
    std::optional<PreferenceMetrics> preferences{};
    void add(ExampleMetrics const& of_step);
    std::optional<PreferenceMetrics> preferences_mean() const;
  };
  ExampleSums examples_since_line_;

  struct Attempt {
    Clock::time_point started;
    std::int64_t steps = 0, skipped = 0, tokens = 0;
    double loss_sum = 0.0;  ///< loss sum of the finite step losses
    std::int64_t finite_losses = 0;
    double last_loss = 0.0;
    double mean_loss() const { return loss_sum / static_cast<double>(finite_losses); }
    double seconds = 0.0;  ///< sum over the steps
  };
  Attempt attempt_;
};

}  // namespace tessera::train
