#pragma once
/// `tessera doctor`: what this node offers a run, or why a run ended.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_doctor(CLI::App& app);

}  // namespace tessera::cli
