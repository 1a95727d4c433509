#pragma once
/// Runs other programs without a shell and with a time limit; words of a command line as text for a
/// POSIX shell.

#include <chrono>
#include <string>
#include <vector>

namespace tessera::cli {

struct ProgramResult {
  int code =
      -1;  ///< exit code; 128 + signal when killed; -1: not found, or killed at the time limit
  std::string output;  ///< standard output; with Capture::both also standard error
};
enum class Capture { standard_output, both };

/// Runs the program words[0], found in PATH, with an empty standard input.
ProgramResult run_program(std::vector<std::string> const& words, std::chrono::milliseconds limit,
                          Capture capture = Capture::standard_output);

/// Its standard output when it exits with 0 within the limit; otherwise empty.
std::string output_of(std::vector<std::string> const& words, std::chrono::milliseconds limit);

/// Replaces this process by that program (execvp(3)). @p input, when not empty, is its standard
/// input.
/// @throws IoError when it cannot be started
[[noreturn]] void exec_program(std::vector<std::string> const& words,
                               std::string const& input = "");

/// The word as the shell reads it back: in single quotes if it is empty or contains characters that
/// the shell interprets.
std::string shell_quoted(std::string const& word);
/// The quoted words, separated by spaces.
std::string shell_line(std::vector<std::string> const& words);

}  // namespace tessera::cli
