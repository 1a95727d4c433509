#pragma once
/// Log lines for a batch job: one line an event, flushed, no control characters, on standard error.

#include <filesystem>
#include <string>

namespace tessera::log {

enum class Level { debug, info, warning, error };

/// What this process writes: rank 0 from `level` on, other ranks from `replica_level` on, with
/// "[rank r host]" in front.
struct Settings {
  Level level = Level::info;
  Level replica_level = Level::warning;
  int rank = 0;
  int world_size = 1;
  std::string host;
  std::filesystem::path directory;  ///< each rank also writes DIRECTORY/rank_00003.log, everything
                                    ///< from debug on; empty: none
};
void configure(Settings const& settings);

void debug(std::string const& message);
void info(std::string const& message);
/// Said once per distinct text; repeats are counted, not printed.
void warning(std::string const& message);
void error(std::string const& message);

}  // namespace tessera::log
