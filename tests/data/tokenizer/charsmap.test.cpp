#include "tokenizer/charsmap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::HasSubstr;

/// The rules of tests/oracles/tokenizer_models.py, compiled by SentencePiece.
Charsmap stored() {
  auto const tree =
      ConfigTree::read(TESSERA_TEST_DATA "/data/vectors/tokenizer_models/t5/tokenizer.json");
  auto const& steps = tree.at("normalizer").at("normalizers").as_array();
  return {steps[0].at("precompiled_charsmap").as_string(), "test"};
}

TEST(Charsmap, ReplacesWhatItHasAnEntryFor) {
  Charsmap const map = stored();
  EXPECT_EQ(map.apply("\uFB01ne \u2026 x"), "fine ... x");
  EXPECT_EQ(map.apply("e\u0301a"), "\u00E9a");
  EXPECT_EQ(map.apply("plain"), "plain");
  EXPECT_EQ(map.apply(""), "");
}

/// A cluster of at most 5 bytes that begins with an entry becomes the replacement of that entry,
/// as in Hugging Face's tokenizers.
TEST(Charsmap, TheShortestEntryCountsForTheCluster) {
  EXPECT_EQ(stored().apply("\uFF21\u0301"), "A");
  EXPECT_EQ(stored().apply("\uFF21\u0301\u0301"), "A\u0301\u0301");
}

TEST(Charsmap, RejectsDamagedData) {
  auto const error = [](char const* text) {
    return error_of<DataError>([&] { Charsmap(text, "map"); });
  };
  EXPECT_THAT(error("A*=="), HasSubstr("has the character '*'"));
  EXPECT_THAT(error(""), HasSubstr("map has 0 bytes"));
  EXPECT_THAT(error("CAAAAAAAAAA="), HasSubstr("a trie of 8"));  // 8 of 4 bytes
  EXPECT_THAT(error("BAAAAAAAAAD/"), HasSubstr("not UTF-8"));
}

/// Labels and offsets that lead out of the trie find nothing.
TEST(Charsmap, AWrongTrieIsHarmless) {
  for (char const* text : {"BAAAAP////9hAA==", "BAAAAAAAAABhAA==", "BAAAAGEBAABhAA=="})
    EXPECT_NO_THROW(Charsmap(text, "map").apply("abc \u00E9")) << text;
}

TEST(Base64, IsDecoded) {
  EXPECT_EQ(decode_base64("", "x"), "");
  EXPECT_EQ(decode_base64("Zg==", "x"), "f");
  EXPECT_EQ(decode_base64("Zm9vYmE=", "x"), "fooba");
  EXPECT_EQ(decode_base64("+/+/", "x"), "\xFB\xFF\xBF");
}

}  // namespace
}  // namespace tessera::data::detail
