#pragma once
/// What a subcommand of `tessera` prints.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command.hpp"

namespace tessera::cli::test {

/// Parses and runs @p words, of which the first one is the subcommand that @p add adds.
/// @throws what the subcommand throws
inline std::string output_of(void (*add)(Command&), std::vector<std::string> const& words) {
  Command app("tessera");
  add(app);
  ::testing::internal::CaptureStdout();
  try {
    app(words);
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  return ::testing::internal::GetCapturedStdout();
}

}  // namespace tessera::cli::test
