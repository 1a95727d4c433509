#pragma once
/// The files through which a run tells what it does: status.json, metrics.jsonl, and the lines on
/// standard error.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/status_line.hpp"

namespace tessera::train {

/// status.json: the truth about the run, replaced atomically (docs/reference/run-directory.md).
class StatusFile {
 public:
  /// @param run_directory an existing directory; empty: nothing is written (ranks other than 0)
  StatusFile(std::filesystem::path const& run_directory, ConfigTree identity);

  enum class State { starting, running, saving, stopped_early, done, failed };
  /// Throttled to one write a second, except when the state changes.
  void update(State state, std::int64_t step, std::int64_t total_steps);
  /// A field that goes out with the next write.
  void set(std::string const& key, ConfigTree value) { document_.set(key, std::move(value)); }
  void checkpoint_saved(std::string const& name);
  struct Ending {
    State state = State::failed;
    int exit_code = 0;
    std::string reason;
    int suspect_rank = -1;
    std::string suspect_host;
  };
  void finish(Ending const& ending);
  /// From here on this process writes the file although it was not the writer: rank 0 is gone, or
  /// this rank alone knows why.
  void take_over(std::filesystem::path const& run_directory);

 private:
  void write();
  std::filesystem::path file_;
  ConfigTree document_;
  std::optional<State> state_;
  std::chrono::steady_clock::time_point last_write_{};
};

/// True when status.json says already why the run has failed: a rank that loses its peers
/// afterwards must not hide that reason.
bool run_has_failed(std::filesystem::path const& run_directory);

/// metrics.jsonl: one JSON object a line, appended by one writer. After a resume the lines of steps
/// that are run again are dropped.
class MetricsFile {
 public:
  /// @param first_step steps from here on are written anew; 1 starts an empty file
  MetricsFile(std::filesystem::path const& run_directory, std::int64_t first_step);
  ~MetricsFile();
  MetricsFile(MetricsFile const&) = delete;
  MetricsFile& operator=(MetricsFile const&) = delete;
  void write(ConfigTree const& record);

 private:
  int descriptor_ = -1;
  std::filesystem::path file_;
};

/// Lines for a batch log: one per logging_steps with what a person wants to see; on a terminal also
/// a live line in between.
class Progress {
 public:
  Progress(bool enabled, std::int64_t total_steps);
  struct Sample {
    std::int64_t step = 0;
    double loss = 0.0;  ///< mean since the last line
    double grad_norm = 0.0;
    double learning_rate = 0.0;
    double tokens_per_second = 0.0;
    double loss_scale = 1.0;
    bool show_loss_scale = false;
  };
  void line(Sample const& sample);
  void live(std::int64_t step);
  /// Removes the live line before something else is printed.
  void clear();

 private:
  double seconds_left(std::int64_t step) const;
  bool enabled_;
  StatusLine live_;
  std::int64_t total_steps_;
  std::int64_t first_step_ = -1;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tessera::train
