#include "tessera/config/option_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "small_table.hpp"

namespace tessera::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OptionText, HelpIsWrappedAndLeavesRefusalsOut) {
  std::string const text = help(table(), "program\n");
  EXPECT_THAT(text, AllOf(HasSubstr("\nNumbers\n  --max_steps N"),
                          HasSubstr("steps to run (default: -1)"), HasSubstr("default: 5e-05")));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("--push")), HasSubstr("--compile, --workers")));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(OptionText, MarkdownHasEveryOption) {
  std::string const page = markdown(table(), "# Page\n");
  for (auto const& option : table().options())
    EXPECT_THAT(page, HasSubstr("`" + option.name + "`"));
  EXPECT_THAT(page, AllOf(HasSubstr("| where \\| to |"), HasSubstr("integer, from 0 to 3"),
                          HasSubstr("no: use stage 3"), HasSubstr("| none | where |")));
}

TEST(OptionText, ExplainsOneOption) {
  EXPECT_EQ(explain(*table().find("bf16")),
            "  bfloat16\n  values: true or false\n  default: false\n  other names: brain\n"
            "  supported: yes\n");
  EXPECT_THAT(explain(*table().find("push")), HasSubstr("supported: no: nothing is uploaded"));
  EXPECT_THAT(explain(*table().find("stage")), HasSubstr("values: integer, from 0 to 3\n"));
}

}  // namespace
}  // namespace tessera::config
