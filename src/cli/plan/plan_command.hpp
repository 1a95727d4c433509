#pragma once
/// `tessera plan`: memory, communication and time of every way to run a training, before it starts.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_plan(CLI::App& app);

}  // namespace tessera::cli
