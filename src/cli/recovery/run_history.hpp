#pragma once
/// Failures of a run, what each cost, and which share of the time made progress: recovery.json in
/// the run directory, which `tessera run` writes and `tessera status` and `tessera doctor --why`
/// read.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "recovery/failure.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::cli {

inline constexpr char const* history_file = "recovery.json";

class RunHistory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// @param earlier  the history of the directory, continued if the run resumes; null: none
  explicit RunHistory(ConfigTree earlier, Time now);

  void attempt_begins(int ranks, Time now);
  /// The first step of the attempt begins. @param restored  the step of its checkpoint; 0: none
  /// @param restore_seconds  of the start, to read that checkpoint
  void training_begins(std::int64_t restored, double restore_seconds, Time now);
  void step_completed(std::int64_t step, Time now);
  /// @param last_sign  when the attempt last made progress
  void attempt_failed(Failure const& failure, Time last_sign, Time now);
  void run_ended(int exit_code, std::string const& reason, Time now);

  std::int64_t step() const { return step_; }  ///< the newest completed step
  bool training() const { return phase_ != Phase::starting; }
  bool caught_up() const { return phase_ == Phase::progress; }
  std::int64_t steps_of_attempt() const { return training() ? step_ - restored_ : 0; }
  ConfigTree tree(Time now) const;

 private:
  enum class Phase { starting, recomputing, progress };
  void lose(char const* what, double seconds);

  ConfigTree document_;
  Time started_, phase_began_;
  double elapsed_before_ = 0.0;
  bool may_start_over_ = true;  ///< no attempt of this supervisor has trained
  Phase phase_ = Phase::starting;
  std::int64_t step_ = 0, restored_ = 0, failed_step_ = 0;
};

/// "3 failures (2 killed by signal 9 (Killed), 1 ...)", or "none".
std::string failures_text(ConfigTree const& history);
/// "97.1 % of 12m 3s; lost: start 1.2 s, restore ..."
std::string goodput_text(ConfigTree const& history);
/// Nodes that computed wrong results.
std::vector<std::string> excluded_nodes(ConfigTree const& history);
/// One line per failure, the newest @p most of them.
std::vector<std::string> history_lines(ConfigTree const& history, std::size_t most);

}  // namespace tessera::cli
