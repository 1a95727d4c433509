#include "tokenizer/token_positions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

using tessera::data::TextSpan;
using tessera::data::detail::SpanMarker;
using tessera::data::detail::TokenPositions;
using tessera::data::detail::without_spaces;
using ::testing::ElementsAre;

namespace {

TEST(TokenPositions, FollowSpacesBytesAndUnknownCharacters) {
  TokenPositions const positions("\u2581ab \u00e9x",
                                 {"\u2581a", "b", "\u2581", "<0xC3>", "<0xA9>", "x"});
  EXPECT_EQ(positions[0].end, 2U);
  EXPECT_EQ(positions[3].begin, 4U);
  EXPECT_EQ(positions.end(), 7U);
  EXPECT_EQ(TokenPositions("a\u00e9\u00e8b", {"a", "<unk>", "b"})[1].end, 5U);
  EXPECT_EQ(TokenPositions("ab", {"\u2581a", "b"}).of_prefix("a"), 2U);
  EXPECT_THROW(TokenPositions("ab", {"a"}), tessera::DataError);
}

TEST(TokenPositions, LeaveOutSpaces) {
  TextSpan const token = without_spaces({3, 7}, "  a ", false);
  EXPECT_EQ(token.begin, 5U);
  EXPECT_EQ(token.end, 6U);
  EXPECT_EQ(without_spaces({0, 2}, " a", true).begin, 0U);
}

TEST(SpanMarker, MarksTokensThatOverlap) {
  std::vector<TextSpan> const spans{{2, 4}, {6, 7}};
  std::vector<std::uint8_t> inside;
  SpanMarker marker(spans, inside);
  marker.begin_piece({0, 5}, [](std::size_t at) { return at; });
  for (TextSpan const token : {TextSpan{0, 2}, {2, 3}, {3, 5}}) marker.add(token);
  marker.begin_piece({5, 8}, [](std::size_t at) { return at; });
  for (TextSpan const token : {TextSpan{5, 6}, {6, 8}}) marker.add(token);
  EXPECT_THAT(inside, ElementsAre(0, 1, 1, 0, 1));
}

}  // namespace
