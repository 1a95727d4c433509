#include "tessera/config/option_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tessera::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ArgumentsTable, EveryOptionSaysWhatItMeansAndWhyItIsNotFollowed) {
  for (auto const& option : argument_table().options()) {
    EXPECT_FALSE(option.meaning.empty()) << option.name;
    EXPECT_FALSE(option.support != Support::full && option.note.empty()) << option.name;
  }
}

TEST(ArgumentsTable, HelpFitsATerminalAndListsWhatIsSupported) {
  auto const text = arguments_help();
  EXPECT_THAT(text, HasSubstr("--per_device_train_batch_size N"));
  EXPECT_THAT(text, Not(HasSubstr("--push_to_hub,")));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

}  // namespace
}  // namespace tessera::config
