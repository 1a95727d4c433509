#pragma once
/// Signs of life of a run: what its rank 0 writes to status.json and metrics.jsonl.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::cli {

class RunWatch {
 public:
  /// What an earlier attempt has left in @p run_directory does not count.
  explicit RunWatch(std::filesystem::path const& run_directory);

  /// Reads what has changed. @returns whether anything has
  bool look();

  /// status.json, once this attempt has written it.
  std::optional<ConfigTree> const& status() const { return status_; }
  /// "starting", "running", ...; empty before the first status.
  std::string state() const { return status_ ? status_->get_string("state", "") : ""; }
  /// The newest step in metrics.jsonl; nothing before this attempt has completed one.
  std::optional<std::int64_t> step() const { return step_; }

 private:
  /// A file that is replaced or that grows has another one.
  struct Stamp {
    std::uint64_t inode = 0;
    std::int64_t size = -1, seconds = 0, nanoseconds = 0;
    bool operator==(Stamp const&) const = default;
  };
  static Stamp stamp_of(std::filesystem::path const& file);

  std::filesystem::path status_file_, metrics_file_;
  Stamp status_stamp_, metrics_stamp_;
  std::optional<ConfigTree> status_;
  std::optional<std::int64_t> step_;
};

/// Whether a status.json records the end of its run.
bool has_ended(ConfigTree const& status);

/// The step in the last complete line of a text that has one; nothing without such a line.
std::optional<std::int64_t> last_step_in(std::string const& metrics);

}  // namespace tessera::cli
