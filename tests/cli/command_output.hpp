#pragma once
/// What a subcommand of `tessera` prints.

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace tessera::cli::test {

/// Parses and runs @p words, of which the first one is the subcommand that @p add adds.
/// @throws what the subcommand throws
inline std::string output_of(void (*add)(CLI::App&), std::vector<std::string> words) {
  CLI::App app;
  add(app);
  std::reverse(words.begin(), words.end());
  ::testing::internal::CaptureStdout();
  try {
    app.parse(words);
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  return ::testing::internal::GetCapturedStdout();
}

}  // namespace tessera::cli::test
