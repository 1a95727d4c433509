#pragma once
/// `tessera config check` and `page`: resolves configurations, prints the option reference.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_config_commands(CLI::App& app);

}  // namespace tessera::cli
