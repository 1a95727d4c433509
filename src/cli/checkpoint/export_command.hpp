#pragma once
/// `tessera export`: a checkpoint becomes a Hugging Face model directory.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_export(CLI::App& app);

}  // namespace tessera::cli
