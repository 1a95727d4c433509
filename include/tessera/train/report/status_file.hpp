#pragma once
/// status.json: the state of a run. Fields: docs/reference/run-directory.md.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// The document is replaced atomically at each write. What earlier attempts say about the training
/// in this directory is kept until an attempt trains.
class StatusFile {
 public:
  /// @param run_directory an existing directory; empty: nothing is written (ranks other than 0)
  StatusFile(std::filesystem::path const& run_directory, ConfigTree identity);

  /// What the run does.
  enum class State { starting, running, saving, stopped_early, done, failed };
  /// @p step is completed. Writes at most once per second, except when the state changes.
  void update(State state, std::int64_t step, std::int64_t total_steps);
  /// A sign of life for those who watch the file: rewrites it if that was 5 s ago.
  void touch();
  /// Sets a field for the next write.
  void set(std::string const& key, ConfigTree value);
  void checkpoint_saved(std::string const& name);
  /// This attempt changes the training: an earlier one's completion no longer holds.
  /// @param job of the batch system, may be empty
  /// @param checkpoint of this directory that the training resumes from; empty: from the beginning
  void training_begins(std::string const& job, std::string const& checkpoint);
  /// The batch system stops this attempt after @p steps steps. @returns how many attempts in a row
  /// it stopped after at most one step, this one included
  int attempt_stops(std::int64_t steps);
  /// Notes for the next write that the last step is done and the model is written.
  void training_completed() { set("completed", true); }
  /// How an attempt has ended.
  struct Ending {
    State state = State::failed;
    int exit_code = 0;
    std::string reason;
    int suspect_rank = -1;  ///< the rank that caused a failure; -1: unknown
    std::string suspect_host;
  };
  void finish(Ending const& ending);
  /// A signal is about to end the process without a save. Called by another thread; nothing is
  /// written afterwards.
  void finish_by_signal(int signal_number, std::string const& signal_name);
  /// Makes this process the writer: rank 0 is lost, or only this rank knows the reason of a
  /// failure.
  void take_over(std::filesystem::path const& run_directory);

 private:
  void end(Ending const& ending);
  void write();
  std::timed_mutex mutex_;  ///< guards everything below
  std::filesystem::path file_;
  ConfigTree document_;
  std::optional<State> state_;
  std::chrono::steady_clock::time_point last_write_{};
};

/// What earlier attempts left in the status.json of a run directory.
struct EarlierAttempts {
  bool completed = false;      ///< the training has finished, and no attempt has changed it since
  std::string trained_in_job;  ///< batch job of the last attempt that trained
};
/// Nothing of a file that is missing or damaged.
EarlierAttempts earlier_attempts(std::filesystem::path const& run_directory);

/// True if status.json already has the reason of a failure: a rank that loses its peers afterwards
/// must not replace it.
bool run_has_failed(std::filesystem::path const& run_directory);

}  // namespace tessera::train
