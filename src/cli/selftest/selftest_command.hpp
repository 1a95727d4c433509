#pragma once
/// `tessera selftest`: checks an installation on this machine and file system in seconds.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_selftest(CLI::App& app);

}  // namespace tessera::cli
