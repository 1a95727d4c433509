#pragma once
/// Man pages in troff and the bash completion of tessera and tessera-train, from the tables behind
/// --help.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "tessera/config/option_table.hpp"

namespace tessera::cli {

/// A bash script. It completes the words of a subcommand, otherwise those of the program, otherwise
/// files.
std::string bash_completion(CLI::App const& app);

/// tessera-train(1)
std::string training_page();
/// tessera(1): @p app is the complete program.
std::string tools_page(CLI::App const& app);
/// zero-to-fp32(1)
std::string consolidation_page();

/// What kind of value an option or argument takes: for man pages and completion.
struct ValueKind {
  enum class Source { flag, text, file, directory, words, job_template, site };
  Source source = Source::text;
  std::string name;                ///< "DIR", "N", "fp32|bf16|fp16"; empty for a flag
  std::vector<std::string> words;  ///< words of Source::words
};

ValueKind value_kind(CLI::Option const& option);
ValueKind value_kind(config::Option const& option);

/// The options of a command that people see, and its positional arguments, in order.
std::vector<CLI::Option const*> options_of(CLI::App const& app);
std::vector<CLI::Option const*> arguments_of(CLI::App const& app);
std::vector<CLI::App const*> commands_of(CLI::App const& app);

}  // namespace tessera::cli
