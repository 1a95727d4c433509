#pragma once
/// Experiment trackers that read a run from files: TensorBoard, W&B and MLflow. Nothing is sent to
/// a service.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

struct Scalar {
  std::string tag;  ///< "train/loss"
  double value = 0.0;
};

/// The files of one tracker. A failed write is logged as a warning; it does not end the run.
class Tracker {
 public:
  Tracker() = default;
  Tracker(Tracker const&) = delete;
  Tracker& operator=(Tracker const&) = delete;
  virtual ~Tracker() = default;

  virtual void write(std::int64_t step, std::vector<Scalar> const& scalars) = 0;
  virtual void write_text(std::int64_t step, std::string const& tag, std::string const& text) = 0;
  /// The training is complete.
  virtual void end() {}
};

/// What W&B and MLflow show of a run besides its values.
struct TrackedRun {
  std::filesystem::path output_dir;
  std::string name;                              ///< --run_name; empty: the name of output_dir
  ConfigTree parameters = ConfigTree::object();  ///< members by name
};

/// W&B's offline run: offline-run-<time>-<id>/run-<id>.wandb below output_dir/wandb, which `wandb
/// sync` uploads. WANDB_DIR, WANDB_RUN_ID, WANDB_PROJECT (default: huggingface), WANDB_ENTITY,
/// WANDB_NAME, WANDB_RUN_GROUP, WANDB_JOB_TYPE, WANDB_NOTES and WANDB_TAGS mean what they mean to
/// W&B. A start at a later step continues the newest run of this output_dir and drops its rows from
/// @p first_step on. The file is a log of protocol buffers (wandb.proto, LevelDB's log format with
/// zlib's CRC-32). @throws IoError
std::unique_ptr<Tracker> wandb_run(TrackedRun const& run, std::int64_t first_step);

/// A run in MLflow's file store: output_dir/mlruns, or the directory in MLFLOW_TRACKING_URI. The
/// names of values are those of the Trainer's callback (loss, eval_loss). MLFLOW_EXPERIMENT_NAME
/// and MLFLOW_RUN_ID mean what they mean to MLflow. A start at a later step continues the newest
/// run of this output_dir and drops its values from @p first_step on.
/// @throws ConfigError for a tracking URI that is not a directory, IoError
std::unique_ptr<Tracker> mlflow_run(TrackedRun const& run, std::int64_t first_step);

/// The value of an environment variable, else @p otherwise.
std::string environment_variable(char const* name, std::string const& otherwise = "");

/// Digits that name a run: @p half of the length from the path of @p output_dir, by which a resume
/// finds its run, and as many from the time of the start.
struct RunId {
  std::string of_directory, of_start;
  std::string text() const { return of_directory + of_start; }
};
RunId run_id(std::filesystem::path const& output_dir, std::size_t half);

}  // namespace tessera::train
