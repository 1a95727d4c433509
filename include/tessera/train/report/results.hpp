#pragma once
/// The result files of run_clm.py: train_results.json, eval_results.json, and all_results.json with
/// the members of both.

#include <filesystem>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// Writes <split>_results.json and merges the members into all_results.json.
void write_results(std::filesystem::path const& output_dir, std::string const& split,
                   ConfigTree const& results);

}  // namespace tessera::train
