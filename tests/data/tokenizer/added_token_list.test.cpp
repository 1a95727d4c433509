#include "tokenizer/added_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

std::unordered_map<std::string, std::int32_t> const vocabulary{{"a", 0}, {"b", 1}, {"<s>", 4}};

AddedToken token(std::string content, std::int32_t id = -1) {
  AddedToken out;
  out.content = std::move(content);
  out.id = id;
  return out;
}

TEST(AddedTokenList, AnIdComesFromTheVocabularyOrIsTheNextFreeOne) {
  AddedTokenList list(vocabulary);
  list.add(token("<s>"), "test");
  list.add(token("<new>"), "test");
  list.add(token("<set>", 2), "test");
  list.add(token("<last>"), "test");
  EXPECT_EQ(list.find("<s>"), 4);
  EXPECT_EQ(list.find("<new>"), 5);  // after the largest id, although 2 and 3 are free
  EXPECT_EQ(list.find("<set>"), 2);
  EXPECT_EQ(list.find("<last>"), 6);
  EXPECT_EQ(list.find("a"), -1);
  EXPECT_EQ(list.take().size(), 4u);
}

TEST(AddedTokenList, TheFirstDescriptionStays) {
  AddedTokenList list(vocabulary);
  auto first = token("<s>"), second = token("<s>");
  first.lstrip = true;
  list.add(first, "test");
  list.add(second, "test");
  auto const tokens = list.take();
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_TRUE(tokens[0].lstrip);
}

TEST(AddedTokenList, ContradictingIdsAreErrors) {
  AddedTokenList list(vocabulary);
  EXPECT_THROW(list.add(token("<s>", 3), "test"), DataError);    // 4 in the vocabulary
  EXPECT_THROW(list.add(token("<new>", 1), "test"), DataError);  // the id of b
  EXPECT_THROW(list.add(token(""), "test"), DataError);
}

TEST(AddedTokenList, SpecialTokensAreTextsOrObjects) {
  AddedToken const text = read_special_token(ConfigTree("<s>"));
  EXPECT_EQ(text.content, "<s>");
  EXPECT_TRUE(text.special);
  EXPECT_FALSE(text.normalized);
  AddedToken const object = read_special_token(ConfigTree::parse(
      R"({"content": "<m>", "lstrip": true, "normalized": true, "single_word": false})", "test"));
  EXPECT_EQ(object.content, "<m>");
  EXPECT_TRUE(object.lstrip && object.normalized && object.special);
  AddedToken const plain = read_added_token(ConfigTree::parse(R"({"content": "x"})", "test"), {});
  EXPECT_TRUE(plain.normalized);  // unless special
}

}  // namespace
}  // namespace tessera::data::detail
