#pragma once
/// The live view of a run in a terminal: `tessera status --watch`.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::cli {

/// The newest records of metrics.jsonl, oldest first: what its last 64 KiB hold. None where the
/// file is absent.
std::vector<ConfigTree> newest_records(std::filesystem::path const& run);

/// Lines for a terminal of @p columns: state, progress and time left, loss with a curve of the
/// newest steps, throughput, memory, last checkpoint and evaluation.
std::string watch_view(ConfigTree const& status, std::vector<ConfigTree> const& records,
                       std::int64_t columns);

/// Returns state, step, loss, throughput and time left in one line: "running, step 12/100,
/// loss 2.3412, 812 tokens/s, left 3m 02s".
std::string watch_line(ConfigTree const& status, std::vector<ConfigTree> const& records);

/// Prints the view once a second until the run has ended; lines where standard output is not a
/// terminal, one for each change of the step.
/// @throws IoError when neither status nor metrics have changed for @p patience and no process of
/// the run is alive
void watch(std::filesystem::path const& run,
           std::chrono::seconds patience = std::chrono::seconds(15));

}  // namespace tessera::cli
