#pragma once
/// `tessera status`: the state of a run, from its status.json.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_status(CLI::App& app);

}  // namespace tessera::cli
