#pragma once
/// `tessera tokenize`: prints the token ids of a text, or writes those of files. `tessera tokenizer
/// train`: trains a tokenizer.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_tokenize(CLI::App& app);
void add_tokenizer(CLI::App& app);

}  // namespace tessera::cli
