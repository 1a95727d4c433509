#pragma once
/// status.json: the state of a run. Fields: docs/reference/run-directory.md.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// The document is replaced atomically at each write.
class StatusFile {
 public:
  /// @param run_directory an existing directory; empty: nothing is written (ranks other than 0)
  StatusFile(std::filesystem::path const& run_directory, ConfigTree identity);

  enum class State { starting, running, saving, stopped_early, done, failed };
  /// Writes at most once per second, except when the state changes.
  void update(State state, std::int64_t step, std::int64_t total_steps);
  /// Sets a field for the next write.
  void set(std::string const& key, ConfigTree value) { document_.set(key, std::move(value)); }
  void checkpoint_saved(std::string const& name);
  struct Ending {
    State state = State::failed;
    int exit_code = 0;
    std::string reason;
    int suspect_rank = -1;  ///< the rank that caused a failure; -1: unknown
    std::string suspect_host;
  };
  void finish(Ending const& ending);
  /// Makes this process the writer: rank 0 is lost, or only this rank knows the reason of a
  /// failure.
  void take_over(std::filesystem::path const& run_directory);

 private:
  void write();
  std::filesystem::path file_;
  ConfigTree document_;
  std::optional<State> state_;
  std::chrono::steady_clock::time_point last_write_{};
};

/// True if status.json already has the reason of a failure: a rank that loses its peers afterwards
/// must not replace it.
bool run_has_failed(std::filesystem::path const& run_directory);

}  // namespace tessera::train
