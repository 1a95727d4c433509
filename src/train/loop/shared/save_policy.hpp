#pragma once
/// How a run saves: in the background where memory allows it, surviving a number of failures, and
/// knowing which step is safe on disk.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/save/node_memory.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/train/loop/memory_schedule.hpp"
#include "tessera/train/report/run_log.hpp"
#include "tessera/train/report/status_file.hpp"
#include "tessera/train/setup/training_run.hpp"
#include "tessera/train/step/deadline.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// What a checkpoint holds: what the options say (perhaps the model only), or one that a run can
/// resume from.
enum class SaveContent { regular, resumable };

/// The request for a checkpoint after step @p step. @pre the run trains
checkpoint::SaveRequest save_request(JobContext const& job, TrainingRun const& run,
                                     std::int64_t step, SaveContent content);

enum class SaveMode {
  wait,        ///< until the checkpoint is durable
  background,  ///< where host memory allows it
};

class SavePolicy {
 public:
  struct Options {
    config::AsyncSave async = config::AsyncSave::automatic;
    std::int64_t max_failures = 3;  ///< in a row; 0: the first one ends the run
    int ranks_on_node = 1;          ///< that share the node's memory
    int copy_threads = 1;
    std::int64_t total_steps = 0;  ///< for status.json
    /// Called on every rank with the states that a save is about to write; what it throws ends the
    /// run. Null: nothing is checked.
    std::function<void(std::int64_t step, checkpoint::StateViews const& states)> check{};
    std::optional<checkpoint::NodeMemory> memory{};  ///< checkpoints there, too; none: only on disk
    config::MemorySaveSteps memory_steps{};
    std::int64_t first_step = 1;       ///< where this start of the run begins
    std::vector<std::string> hosts{};  ///< names of the nodes of all ranks, for messages
  };
  /// The request of a save of step @p step, made when the save begins.
  using MakeRequest =
      std::function<checkpoint::SaveRequest(std::int64_t step, SaveContent content)>;
  /// Outlive the policy.
  struct Parts {
    comm::Collectives& comm;
    zero::Engine& engine;
    StatusFile& status;
    RunLog& log;
    Deadline& deadline;
  };
  /// Takes the memory of a snapshot now with AsyncSave::on. @throws OutOfMemoryError also when the
  /// checkpoints in memory do not fit into it. Collective.
  SavePolicy(Options const& options, Parts const& parts, MakeRequest make_request);

  /// Saves; waits first for a save that is in flight. Collective.
  void save(std::int64_t step, SaveMode mode, SaveContent content);
  /// Begins a save to the memory of the nodes if one is due after @p step and no save is in flight.
  /// It is never the reason for the end of the run, except for a state that is not finite.
  /// Collective. @param step_seconds  mean over the ranks
  void save_to_memory(std::int64_t step, double step_seconds);
  /// The next phase of the save in flight, if there is one. @pre disk_busy() on no rank.
  /// Collective.
  void advance();
  /// Waits for the save in flight, if there is one. Collective.
  void finish();

  bool disk_busy() const { return saver_.disk_works(); }
  /// A resumable checkpoint of @p step is written or in flight.
  bool covers(std::int64_t step) const {
    return last_saved_ == step || (saver_.step() == step && !flight_.in_memory);
  }
  /// Step of the newest resumable checkpoint; -1: none.
  std::int64_t last_saved_step() const { return last_saved_; }
  /// Step of the newest resumable checkpoint whose last step updated the weights; -1: none.
  std::int64_t last_progress_step() const { return last_progress_; }
  void resumed_from(std::int64_t step, std::int64_t skipped_in_a_row) {
    last_saved_ = step;
    if (skipped_in_a_row == 0) last_progress_ = step;
  }
  /// Why the last save that ended failed; empty when it succeeded.
  std::string const& last_failure() const { return last_failure_; }
  /// Time that saves have blocked training for.
  std::chrono::duration<double> blocked() const { return blocked_; }

 private:
  bool saves_in_background();
  bool is_worth_a_snapshot() const;
  bool snapshot_fits() const;
  void count_failures(std::int64_t step, std::function<void()> const& phase);
  void memory_save_failed(std::int64_t step, Error const& error);
  void completed(checkpoint::SavedCheckpoint const& saved, std::int64_t step);
  void completed_in_memory(checkpoint::SavedCheckpoint const& saved, std::int64_t step);

  Options options_;
  Parts parts_;
  MakeRequest make_request_;
  checkpoint::BackgroundSaver saver_;
  std::optional<bool> background_;  ///< once decided
  struct Flight {
    bool in_memory = false, model_only = false;
    bool made_progress = true;  ///< its last step
  };
  Flight flight_;  ///< the last save that has begun
  std::optional<MemorySchedule> memory_schedule_;
  std::int64_t last_saved_ = -1, last_progress_ = -1;
  std::int64_t failures_ = 0;  ///< in a row
  std::string last_failure_;
  std::chrono::duration<double> blocked_{0};
};

}  // namespace tessera::train
