#pragma once
/// Man pages in troff, from the tables behind --help.

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::cli {

/// tessera-train(1)
std::string training_page();
/// tessera(1): @p app is the complete program.
std::string tools_page(CLI::App const& app);
/// zero-to-fp32(1)
std::string consolidation_page();

}  // namespace tessera::cli
