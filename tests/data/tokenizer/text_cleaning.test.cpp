/// What tokenizers 0.23.3 gives; data.tokenizer compares more text.
#include "tokenizer/normalizer.hpp"

#include <gtest/gtest.h>

namespace tessera::data::detail {
namespace {

using namespace std::string_literals;

TEST(TextCleaning, NmtRemovesControlsAndWritesSpaces) {
  EXPECT_EQ(nmt_cleaned("a\x01\x7F\tb\u200D\uFEFF\u2581c\u00A0"), "a b   c\u00A0");
}

TEST(TextCleaning, LowerCaseIsThatOfEachCharacter) {
  EXPECT_EQ(lowercased("AZaz\u00C9\u03A3\u0130\u1E9E"), "azaz\u00E9\u03C3i\u0307\u00DF");
  EXPECT_EQ(lowercased("\U00010D51\uA7CB"), "\U00010D71\u0264");  // Unicode 16
}

TEST(TextCleaning, MarksAreThoseOfTheirUnicodeVersions) {
  EXPECT_EQ(without_combining_marks("e\u0301\u0903\u08D3"), "e\u08D3");  // U+08D3 is newer
  EXPECT_EQ(without_nonspacing_marks("e\u0301\u0903"), "e\u0903");
}

TEST(TextCleaning, BertRemovesControlsAndUnifiesSpaces) {
  EXPECT_EQ(bert_cleaned("a\0b\uFFFD\t\u3000c\u200D"s), "ab  c");
}

TEST(TextCleaning, SpacesSurroundIdeographsOnly) {
  EXPECT_EQ(with_spaced_ideographs("a\u4E2D\u3042"), "a \u4E2D \u3042");
}

TEST(TextCleaning, WhiteSpaceIsUnicodes) {
  EXPECT_TRUE(is_white_space(0x85) && is_white_space(0x3000) && is_white_space('\v'));
  EXPECT_FALSE(is_white_space(0x200B) || is_white_space(0x1C) || is_white_space('a'));
}

}  // namespace
}  // namespace tessera::data::detail
