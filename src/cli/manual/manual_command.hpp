#pragma once
/// `tessera manual`: prints man pages and the bash completion.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_manual(CLI::App& app);

}  // namespace tessera::cli
