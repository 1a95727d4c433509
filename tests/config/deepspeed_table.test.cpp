#include "tessera/config/option_table.hpp"

#include <gtest/gtest.h>

namespace tessera::config {
namespace {

TEST(DeepSpeedTable, EveryKeySaysWhatItMeansAndWhyItIsNotFollowed) {
  for (auto const& option : deepspeed_table().options()) {
    EXPECT_FALSE(option.meaning.empty()) << option.name;
    EXPECT_FALSE(option.support != Support::full && option.note.empty()) << option.name;
  }
}

}  // namespace
}  // namespace tessera::config
