#pragma once
/// `tessera import`: a DeepSpeed checkpoint or a Hugging Face model becomes a checkpoint.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_import(CLI::App& app);

}  // namespace tessera::cli
