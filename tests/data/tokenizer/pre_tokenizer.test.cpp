#include "tokenizer/pre_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

std::vector<SplitRule> read(std::string const& json) {
  return read_pre_tokenizer(ConfigTree::parse(json, "test"), "pre_tokenizer").rules;
}

TEST(PreTokenizer, ByteLevelSplitsByGpt2sPattern) {
  auto const rules = read(R"({"type": "ByteLevel", "add_prefix_space": false})");
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_THAT(rules[0].pattern, ::testing::StartsWith("'s|'t"));
  EXPECT_EQ(rules[0].prefix, Prefix::never);
  EXPECT_EQ(read(R"({"type": "ByteLevel"})")[0].prefix, Prefix::always);  // the libraries' default
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
  EXPECT_EQ(rules[0].behavior, SplitBehavior::isolated);
  EXPECT_EQ(rules[1].pattern, "x+");
  EXPECT_EQ(rules[1].behavior, SplitBehavior::removed);
  EXPECT_TRUE(rules[1].invert);
  EXPECT_EQ(rules[2].pattern, "\\p{N}");
}

TEST(PreTokenizer, StepsAfterByteLevelSeeTheByteAlphabet) {
  auto const steps = read_pre_tokenizer(
      ConfigTree::parse(
          R"({"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, {"type": "ByteLevel"},
              {"type": "Digits"}, {"type": "Split", "pattern": {"Regex": "x"},
                                   "behavior": "Isolated"}]})",
          "test"),
      "pre_tokenizer");
  EXPECT_TRUE(steps.byte_level);
  EXPECT_TRUE(steps.in_alphabet);
  ASSERT_EQ(steps.rules.size(), 4u);
  EXPECT_FALSE(steps.rules[0].writes_alphabet);
  EXPECT_TRUE(steps.rules[1].writes_alphabet);
  EXPECT_FALSE(steps.rules[2].writes_alphabet);
}

TEST(PreTokenizer, RejectsWhatWouldChangeIds) {
  for (char const* bad :
       {R"({"type": "UnicodeScripts"})",
        R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Metaspace"}]})",
        R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]})"})
    EXPECT_THROW(read(bad), ConfigError) << bad;
  EXPECT_THROW(read(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {},
      "behavior": "Isolated"}, {"type": "ByteLevel"}]})"),
               DataError);
  EXPECT_THROW(read(R"({"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Merged"})"),
               DataError);
  EXPECT_THROW(read(R"({"type": "Metaspace", "prepend_scheme": "last"})"), DataError);
}

TEST(PreTokenizer, MetaspaceWritesSpacesAsItsCharacter) {
  auto const rules =
      read(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"})");
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].space, "_");
  EXPECT_EQ(rules[0].prefix_text(), "_");
  EXPECT_EQ(rules[0].prefix, Prefix::first);
  EXPECT_EQ(rules[0].behavior, SplitBehavior::merged_with_next);
  EXPECT_EQ(read(R"({"type": "Metaspace", "split": false})")[0].pattern, "");
  EXPECT_EQ(read(R"({"type": "Metaspace", "add_prefix_space": false})")[0].prefix, Prefix::never);
  EXPECT_TRUE(read("null").empty());
}

/// "--ab-c" with "-" as the pattern; Hugging Face's documentation of Split has such an example.
TEST(PreTokenizer, PiecesAreFoldedByTheBehavior) {
  std::string const text = "--ab-c";
  std::vector<Span> const pieces = {{0, 1}, {1, 2}, {2, 4}, {4, 5}, {5, 6}};
  std::vector<bool> const is_match = {true, true, false, true, false};
  auto const folded = [&](SplitBehavior behavior) {
    std::vector<std::string> out;
    for (auto const& span : fold_pieces(pieces, is_match, behavior))
      out.push_back(text.substr(span.begin, span.end - span.begin));
    return out;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(folded(SplitBehavior::removed), ElementsAre("ab", "c"));
  EXPECT_THAT(folded(SplitBehavior::isolated), ElementsAre("-", "-", "ab", "-", "c"));
  EXPECT_THAT(folded(SplitBehavior::merged_with_previous), ElementsAre("-", "-", "ab-", "c"));
  EXPECT_THAT(folded(SplitBehavior::merged_with_next), ElementsAre("-", "-ab", "-c"));
  EXPECT_THAT(folded(SplitBehavior::contiguous), ElementsAre("--", "ab", "-", "c"));
}

}  // namespace
}  // namespace tessera::data::detail
