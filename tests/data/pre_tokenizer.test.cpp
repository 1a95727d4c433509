#include "detail/pre_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

std::vector<SplitRule> read(std::string const& json) {
  return read_pre_tokenizer(ConfigTree::parse(json, "test"), "pre_tokenizer");
}

TEST(PreTokenizer, ByteLevelSplitsByGpt2sPattern) {
  auto const rules = read(R"({"type": "ByteLevel", "add_prefix_space": false})");
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_THAT(rules[0].pattern, ::testing::StartsWith("'s|'t"));
  EXPECT_FALSE(rules[0].add_prefix_space);
  EXPECT_TRUE(read(R"({"type": "ByteLevel"})")[0].add_prefix_space);  // the libraries' default
  EXPECT_EQ(read(R"({"type": "ByteLevel", "use_regex": false})")[0].pattern, "");
}

TEST(PreTokenizer, ASequenceKeepsItsOrder) {
  auto const rules = read(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "a.b"}, "behavior": "Isolated", "invert": false},
      {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Removed", "invert": true},
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "use_regex": false}]})");
  ASSERT_EQ(rules.size(), 4u);
  EXPECT_EQ(rules[0].pattern, "a\\.b");
  EXPECT_TRUE(rules[0].keep_gaps);
  EXPECT_EQ(rules[1].pattern, "x+");
  EXPECT_FALSE(rules[1].keep_gaps);
  EXPECT_EQ(rules[2].pattern, "\\p{N}");
}

TEST(PreTokenizer, RejectsWhatWouldChangeIds) {
  for (char const* bad :
       {R"({"type": "Whitespace"})", R"({"type": "Digits"})",
        R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})",
        R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "x"},
            "behavior": "MergedWithNext"}, {"type": "ByteLevel"}]})"})
    EXPECT_THROW(read(bad), ConfigError) << bad;
  EXPECT_THROW(read(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {},
      "behavior": "Isolated"}, {"type": "ByteLevel"}]})"),
               DataError);
}

}  // namespace
}  // namespace tessera::data::detail
