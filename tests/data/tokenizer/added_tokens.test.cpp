/// Oracle: what Hugging Face's tokenizers (added_vocabulary.rs) gives for these flags, by hand.
#include "tokenizer/added_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;
using Piece = std::pair<std::string, int>;

AddedToken token(std::string content, std::int32_t id) {
  AddedToken out;
  out.content = std::move(content);
  out.id = id;
  return out;
}

std::vector<Piece> split(std::vector<AddedToken> tokens, std::string_view text) {
  std::vector<AddedTokenMatcher::Piece> pieces;
  AddedTokenMatcher(std::move(tokens)).split(text, pieces);
  std::vector<Piece> out;
  for (auto const& piece : pieces) out.emplace_back(std::string(piece.text), piece.id);
  return out;
}

TEST(AddedTokens, TheLongestOfTheLeftmostIsFound) {
  EXPECT_THAT(
      split({token("ab", 1), token("abc", 2), token("bcd", 3)}, "xabcdabx"),
      ElementsAre(Piece("x", -1), Piece("abc", 2), Piece("d", -1), Piece("ab", 1), Piece("x", -1)));
}

TEST(AddedTokens, TextWithoutTokensIsOnePiece) {
  EXPECT_THAT(split({token("<s>", 1)}, "a < s > b"), ElementsAre(Piece("a < s > b", -1)));
  EXPECT_THAT(split({token("<s>", 1)}, ""), ElementsAre());
  EXPECT_THAT(split({token("<s>", 1)}, "<s><s>"), ElementsAre(Piece("<s>", 1), Piece("<s>", 1)));
}

TEST(AddedTokens, StripFlagsTakeTheWhiteSpaceAround) {
  auto left = token("<m>", 1), right = token("<n>", 2);
  left.lstrip = true;
  right.rstrip = true;
  EXPECT_THAT(split({left, right}, "a \u3000<m> b <n>\t c"),
              ElementsAre(Piece("a", -1), Piece(" \u3000<m>", 1), Piece(" b ", -1),
                          Piece("<n>\t ", 2), Piece("c", -1)));
}

TEST(AddedTokens, SingleWordIsNotFoundInsideAWord) {
  auto word = token("cat", 1);
  word.single_word = true;
  EXPECT_THAT(split({word}, "cat concat cats \u00E9cat (cat)"),
              ElementsAre(Piece("cat", 1), Piece(" concat cats \u00E9cat (", -1), Piece("cat", 1),
                          Piece(")", -1)));
}

}  // namespace
}  // namespace tessera::data::detail
