#pragma once
/// `tessera checkpoint view` and `convert`: change a checkpoint's files and keep its tensors.

#include <CLI/CLI.hpp>
#include <string>

#include "tessera/checkpoint/tools/convert.hpp"

namespace tessera::cli {

/// Sets compression and level from "none", "gzip" or "gzip:9". @throws UsageError
void set_compression(checkpoint::ConvertOptions& options, std::string const& text);
/// Sets ranks_per_file from "", "all" or a number of at least 1. @throws UsageError
void set_ranks_per_file(checkpoint::ConvertOptions& options, std::string const& text);

/// Adds the subcommands to `tessera checkpoint`.
void add_layout_commands(CLI::App& group);

}  // namespace tessera::cli
