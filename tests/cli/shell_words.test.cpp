#include "launch/run_program.hpp"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

TEST(ShellWords, PlainWordsStayAsTheyAre) {
  EXPECT_EQ(shell_quoted("--max_steps=20"), "--max_steps=20");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_line({"a", "b c", ""}), "a 'b c' ''");
}

/// The oracle is the shell itself.
TEST(ShellWords, TheShellReadsThemBack) {
  std::vector<std::string> const words{"a b", "it's", "$(touch x)", "`y`", "; z", "\"q\"",
                                       "",    "*",    "~",          "\\",  "#",   "a\nb"};
  std::string expected;
  for (auto const& word : words) expected += "<" + word + ">";
  EXPECT_EQ(output_of({"sh", "-c", "printf '<%s>' " + shell_line(words)}, 10s), expected);
}

}  // namespace
}  // namespace tessera::cli
