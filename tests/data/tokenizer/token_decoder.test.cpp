/// Real tokenizers are compared in data.tokenizer; here are the steps by themselves.
#include "tokenizer/token_decoder.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

TokenDecoder read(std::string const& json) {
  return TokenDecoder(ConfigTree::parse(json, "test"), "decoder");
}

TEST(TokenDecoder, JoinsBytesIntoCharacters) {
  auto const decoder = read(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  EXPECT_EQ(decoder.decode({"_a", "<0xC3>", "<0xA9>", "_b"}), "a\u00E9 b");
  EXPECT_EQ(decoder.decode({"__x", "<0xC3>", "<0xff", "<0xE2>", "<0x82>"}),
            " x\uFFFD<0xff\uFFFD\uFFFD");
}

TEST(TokenDecoder, MetaspaceDropsTheInsertedSpace) {
  std::vector<std::string> const tokens = {"_a", "_b_c"};
  EXPECT_EQ(read(R"({"type": "Metaspace", "replacement": "_"})").decode(tokens), "a b c");
  EXPECT_EQ(read(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"})")
                .decode(tokens),
            " a b c");
}

TEST(TokenDecoder, WithoutOneTokensAreWords) { EXPECT_EQ(read("null").decode({"a", "b"}), "a b"); }

TEST(TokenDecoder, WordPieceJoinsThePiecesOfWords) {
  std::vector<std::string> const tokens{"do", "n't", "un", "##aff", "!", "he", "'s"};
  EXPECT_EQ(read(R"({"type": "WordPiece"})").decode(tokens), "don't unaff! he's");
  EXPECT_EQ(read(R"({"type": "WordPiece", "cleanup": false})").decode(tokens),
            "do n't unaff ! he 's");
}

TEST(TokenDecoder, NamesWhatItDoesNotRead) {
  EXPECT_THROW(read(R"({"type": "CTC"})"), ConfigError);
  EXPECT_THROW(read(R"({"type": "Replace", "pattern": {"Regex": "x"}, "content": ""})"),
               ConfigError);
  EXPECT_THROW(read(R"({"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": []}]})"),
               ConfigError);
}

}  // namespace
}  // namespace tessera::data::detail
