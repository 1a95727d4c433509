#pragma once
/// Other programs, run without a shell and with a limit on their time.

#include <chrono>
#include <string>
#include <vector>

namespace tessera::cli {

struct ProgramResult {
  int code =
      -1;  ///< exit code; 128 + signal when killed; -1: not found, or killed for taking too long
  std::string output;  ///< standard output; with Capture::both also standard error
};
enum class Capture { standard_output, both };

/// Runs a program found in PATH with these words and an empty standard input.
ProgramResult run_program(std::vector<std::string> const& words, std::chrono::milliseconds limit,
                          Capture capture = Capture::standard_output);

/// Its output when it ended well within the limit, else nothing.
std::string output_of(std::vector<std::string> const& words, std::chrono::milliseconds limit);

/// Becomes that program; @p input, when not empty, is its standard input. Returns only by an
/// exception.
/// @throws IoError when it cannot be started
[[noreturn]] void exec_program(std::vector<std::string> const& words,
                               std::string const& input = "");

}  // namespace tessera::cli
