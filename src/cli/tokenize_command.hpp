#pragma once
/// `tessera tokenize`: prints the token ids of a text.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_tokenize(CLI::App& app);

}  // namespace tessera::cli
