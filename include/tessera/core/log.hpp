#pragma once
/// Log lines for a batch job on standard error: one line per event, flushed, no control characters.

#include <filesystem>
#include <string>

namespace tessera::log {

/// How important a log line is.
enum class Level { debug, info, warning, error };

/// What this process logs: rank 0 from `level` up; other ranks from `replica_level` up, with the
/// prefix "[rank r host]".
struct Settings {
  Level level = Level::info;
  Level replica_level = Level::warning;
  int rank = 0;
  int world_size = 1;
  std::string host;
  std::filesystem::path directory;  ///< each rank also writes DIRECTORY/rank_00003.log, with all
                                    ///< levels; empty: no such file
};
void configure(Settings const& settings);

void debug(std::string const& message);
void info(std::string const& message);
/// Logs each distinct text once per process; repeats are dropped.
void warning(std::string const& message);
void error(std::string const& message);

}  // namespace tessera::log
