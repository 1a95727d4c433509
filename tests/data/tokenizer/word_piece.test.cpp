#include "tokenizer/word_piece.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;

std::vector<std::int32_t> encode(WordPieceTables const& tables, std::string_view word) {
  std::vector<std::int32_t> out{7};
  WordPiece(tables).encode(word, out);
  EXPECT_EQ(out.front(), 7);
  out.erase(out.begin());
  return out;
}

WordPieceTables const tables{
    {{"[UNK]", 0}, {"un", 1}, {"##aff", 2}, {"##able", 3}, {"##a", 4}, {"\u00E9", 5}, {"u", 6}}};

TEST(WordPiece, TakesTheLongestTokenFromTheLeft) {
  EXPECT_THAT(encode(tables, "unaffable"), ElementsAre(1, 2, 3));
  EXPECT_THAT(encode(tables, "una"), ElementsAre(1, 4));
  EXPECT_THAT(encode(tables, "u"), ElementsAre(6));
  EXPECT_THAT(encode(tables, "\u00E9a"), ElementsAre(5, 4));
  EXPECT_THAT(encode(tables, ""), ElementsAre());
}

TEST(WordPiece, AWordThatCannotBeCutIsUnknown) {
  EXPECT_THAT(encode(tables, "unaffx"), ElementsAre(0));
  EXPECT_THAT(encode(tables, "un\u00E9"), ElementsAre(0));  // only begins words
}

TEST(WordPiece, LongWordsAreUnknown) {
  WordPieceTables few = tables;
  few.max_characters = 2;
  EXPECT_THAT(encode(few, "\u00E9a"), ElementsAre(5, 4));  // three bytes
  EXPECT_THAT(encode(few, "una"), ElementsAre(0));
}

}  // namespace
}  // namespace tessera::data::detail
