#include "tessera/config/option_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::config {
namespace {

TEST(DeepSpeedTable, EveryKeySaysWhatItMeansAndWhyItIsNotFollowed) {
  for (auto const& option : deepspeed_table().options()) {
    EXPECT_FALSE(option.meaning.empty()) << option.name;
    EXPECT_FALSE(option.support != Support::full && option.note.empty()) << option.name;
  }
}

/// tests/oracles/deepspeed_names.py: the fields of DeepSpeed's typed blocks, each with its alias.
TEST(DeepSpeedTable, HasEveryFieldOfTypedBlocksUnderBothNames) {
  auto const& table = deepspeed_table();
  auto const is_block = [&](std::string const& name) {
    return std::ranges::any_of(table.options(),
                               [&](auto const& o) { return o.name.starts_with(name + "."); });
  };
  auto const document = ConfigTree::read(TESSERA_TEST_DATA "/oracles/deepspeed_names.json");
  for (auto const& [block, fields] : document.at("blocks").as_object())
    for (auto const& names : fields.as_array()) {
      std::string const first = block + "." + names.as_array().front().as_string();
      auto const* option = table.find(first);
      EXPECT_TRUE(option || is_block(first)) << first;
      for (auto const& alias : names.as_array())
        EXPECT_EQ(table.find(block + "." + alias.as_string()), option) << alias.as_string();
    }
}

}  // namespace
}  // namespace tessera::config
