#pragma once
/// `tessera status`: the state of a run, from its status.json.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>

#include "tessera/core/config_tree.hpp"

namespace tessera::cli {

/// The exit code in a run's status.json. @param since  seconds since 1970: an older status belongs
/// to an earlier attempt
/// @throws IoError when the run has not ended, or when the status is older
std::int64_t recorded_exit_code(ConfigTree const& status, std::filesystem::path const& run,
                                std::int64_t since);

void add_status(CLI::App& app);

}  // namespace tessera::cli
