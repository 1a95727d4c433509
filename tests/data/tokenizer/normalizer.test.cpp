/// Real tokenizers are compared in data.tokenizer; here are the steps by themselves.
#include "tokenizer/normalizer.hpp"

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

/// The part of the result that Hugging Face's alignments assign to the first character.
std::string start_of(Normalizer const& normalizer, std::string const& text) {
  auto const result = normalizer.normalize(text);
  return result.text.substr(0, result.start);
}

TEST(Normalizer, KnowsWhatIsLeftOfTheFirstCharacter) {
  auto const strip = read(R"({"type": "Strip"})");
  EXPECT_EQ(start_of(strip, " a"), "");
  EXPECT_EQ(start_of(strip, "a "), "a");
  EXPECT_EQ(start_of(strip, ""), "");
  EXPECT_EQ(start_of(read(R"({"type": "Lowercase"})"), "AB"), "a");
  EXPECT_EQ(start_of(read(R"({"type": "Nmt"})"), "\x01z"), "");
  auto const xlnet = read(R"({"type": "Sequence", "normalizers": [{"type": "Nmt"},
                              {"type": "NFKC"}, {"type": "Strip"}]})");
  EXPECT_EQ(xlnet.apply("\u00B4a"), "\u0301a");
  EXPECT_EQ(start_of(xlnet, "\u00B4a"), "\u0301");
  EXPECT_EQ(start_of(xlnet, "\uFFE3"), "\u0304");
  EXPECT_EQ(start_of(xlnet, "\u3000a"), "");
  EXPECT_EQ(start_of(xlnet, "\u00A0\u00B4"), "") << "the accent is of the second";
  EXPECT_EQ(start_of(xlnet, "e\u0301x"), "\u00E9");
  EXPECT_EQ(start_of(xlnet, "\uFB03x"), "ffi");
}

/// By counting: U+1CDF comes before the diaeresis of U+00A8, and is taken for the second character.
TEST(Normalizer, CountsCharactersWhereMarksChangePlaces) {
  auto const form = read(R"({"type": "NFKC"})");
  EXPECT_EQ(form.apply("\u00A8\u1CDF"), " \u1CDF\u0308");
  EXPECT_EQ(start_of(form, "\u00A8\u1CDF"), " ");
  EXPECT_EQ(start_of(read(R"({"type": "NFD"})"), "\u033B\u3099"), "\u3099");
}

TEST(Normalizer, AlignsAReplacementWithTheLastCharacterThatItReplaces) {
  auto const spaces = read(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})");
  EXPECT_EQ(start_of(spaces, "a  b"), "a");
  EXPECT_EQ(start_of(spaces, "  b"), "");
  EXPECT_EQ(start_of(spaces, " b"), " ");
  auto const none = read(R"({"type": "Replace", "pattern": {"String": "x"}, "content": ""})");
  EXPECT_EQ(start_of(none, "xa"), "");
  EXPECT_EQ(start_of(none, "ax"), "a");
  auto const longer =
      read(R"({"type": "Replace", "pattern": {"String": "x"}, "content": "\u00E9y"})");
  EXPECT_EQ(start_of(longer, "xa"), "\u00E9y");
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
