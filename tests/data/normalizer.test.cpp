/// Real tokenizers are compared in data.tokenizer; here are the steps by themselves.
#include "detail/normalizer.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

Normalizer read(std::string const& json) {
  return Normalizer(ConfigTree::parse(json, "test"), "normalizer");
}

TEST(Normalizer, KnowsTheFourFormsOfUnicode) {  // Unicode Annex 15, figures 3 to 6
  std::string const angstrom = "\u212B", ring = "\u00C5", parts = "A\u030A";
  EXPECT_EQ(read(R"({"type": "NFC"})").apply(angstrom), ring);
  EXPECT_EQ(read(R"({"type": "NFD"})").apply(angstrom), parts);
  std::string const ligature = "\uFB01", power = "2\u2075";
  EXPECT_EQ(read(R"({"type": "NFC"})").apply(ligature + power), ligature + power);
  EXPECT_EQ(read(R"({"type": "NFKC"})").apply(ligature + power), "fi25");
  EXPECT_EQ(read(R"({"type": "NFKD"})").apply("\u1E9B\u0323"), "s\u0323\u0307");
  EXPECT_EQ(read(R"({"type": "NFC"})").apply(std::string("a\0b", 3)), std::string("a\0b", 3));
}

/// What tokenizers 0.23.3 gives: its tables are those of Unicode 9.
TEST(Normalizer, KnowsNoNewerCharactersThanHuggingFace) {
  EXPECT_EQ(read(R"({"type": "NFC"})").apply("a\u08D3\u0323"), "a\u08D3\u0323");
  EXPECT_EQ(read(R"({"type": "NFC"})").apply("\u0301\u0323\u08D3\u0301\u0323"),
            "\u0323\u0301\u08D3\u0323\u0301");
  EXPECT_EQ(read(R"({"type": "NFKC"})").apply("\U0001FBF0\uFB01\U0001E030"),
            "\U0001FBF0fi\U0001E030");
  EXPECT_EQ(read(R"({"type": "NFC"})").apply("\U00011935\U00011930"), "\U00011935\U00011930");
}

TEST(Normalizer, AppliesStepsInOrder) {
  auto const normalizer = read(R"({"type": "Sequence", "normalizers": [
      {"type": "Strip", "strip_left": true, "strip_right": false},
      {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
      {"type": "Replace", "pattern": {"Regex": "_+$"}, "content": "!"},
      {"type": "Prepend", "prepend": ">"}]})");
  EXPECT_EQ(normalizer.apply(" \t a b  "), ">a_b!");
  EXPECT_EQ(normalizer.apply(""), "");
  EXPECT_EQ(read(R"({"type": "Strip"})").apply(" \n a \u00A0b \u2003"), "a \u00A0b");
  EXPECT_EQ(read(R"({"type": "Strip"})").apply("  "), "");
}

TEST(Normalizer, BertsStepsFollowItsOptions) {
  EXPECT_EQ(read(R"({"type": "BertNormalizer"})").apply("\u00C9t\u00E9\t\u4E2D\u0001x"),
            "ete  \u4E2D x");
  EXPECT_EQ(read(R"({"type": "BertNormalizer", "lowercase": false})").apply("\u00C9"), "\u00C9");
  EXPECT_EQ(read(R"({"type": "BertNormalizer", "lowercase": false, "strip_accents": true,
                     "handle_chinese_chars": false, "clean_text": false})")
                .apply("\u00C9\t\u4E2D"),
            "E\t\u4E2D");
}

TEST(Normalizer, KnowsWhetherTheFirstCharacterIsKept) {
  auto const strip = read(R"({"type": "Strip"})");
  EXPECT_FALSE(strip.normalize(" a").keeps_start);
  EXPECT_TRUE(strip.normalize("a ").keeps_start);
  EXPECT_TRUE(read(R"({"type": "Lowercase"})").normalize("A").keeps_start);
  EXPECT_FALSE(read(R"({"type": "Nmt"})").normalize("\x01z").keeps_start);
}

TEST(Normalizer, AnEmptySequenceChangesNothing) {
  EXPECT_TRUE(read("null").empty());
  EXPECT_TRUE(read(R"({"type": "Sequence", "normalizers": []})").empty());
}

TEST(Normalizer, NamesWhatItDoesNotRead) {
  EXPECT_THROW(read(R"({"type": "ByteLevel"})"), ConfigError);
  EXPECT_THROW(read(R"({"type": "Replace", "pattern": {}, "content": ""})"), DataError);
  std::string deep = R"({"type": "NFC"})";
  for (int i = 0; i < 20; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  EXPECT_THROW(read(deep), ConfigError);
}

}  // namespace
}  // namespace tessera::data::detail
