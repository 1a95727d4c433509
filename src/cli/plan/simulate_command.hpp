#pragma once
/// `tessera simulate`: how a run scales with its nodes, and what ends it.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

/// "1,2,4" or "1:1024", which doubles. @throws UsageError
std::vector<int> parse_node_counts(std::string const& text);

void add_simulate(CLI::App& app);

}  // namespace tessera::cli
