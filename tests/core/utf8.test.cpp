/// Oracle: the byte sequences of Unicode 15.0, tables 3-7 to 3-11, and Python's
/// bytes.decode("utf-8", errors="replace") for the repaired texts.
#include "tessera/core/text.hpp"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::string encoded(char32_t code) {
  std::string out;
  append_code_point(code, out);
  return out;
}

TEST(Utf8, EncodesTheBoundsOfEachLength) {
  EXPECT_EQ(encoded(0x7F), "\x7F");
  EXPECT_EQ(encoded(0x80), "\xC2\x80");
  EXPECT_EQ(encoded(0x7FF), "\xDF\xBF");
  EXPECT_EQ(encoded(0x800), "\xE0\xA0\x80");
  EXPECT_EQ(encoded(0xFFFF), "\xEF\xBF\xBF");
  EXPECT_EQ(encoded(0x10000), "\xF0\x90\x80\x80");
  EXPECT_EQ(encoded(0x10FFFF), "\xF4\x8F\xBF\xBF");
}

TEST(Utf8, EveryScalarValueIsValidAndReadsBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string const text = encoded(code);
    std::size_t at = 0;
    ASSERT_TRUE(is_utf8(text)) << static_cast<std::uint32_t>(code);
    ASSERT_EQ(next_code_point(text, at), code);
    ASSERT_EQ(at, text.size());
  }
}

TEST(Utf8, RefusesIllFormedSequences) {
  for (char const* bad :
       {"\x80", "\xC0\xAF", "\xC1\x81", "\xE0\x9F\xBF", "\xED\xA0\x80" /* surrogate */,
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
  EXPECT_TRUE(is_utf8(""));
}

TEST(Utf8, PrefixEndsBeforeTheFirstIllFormedByteAtAnyOffset) {
  for (std::size_t length = 0; length < 40; ++length)  // across the eight bytes looked at together
    EXPECT_EQ(valid_utf8_prefix(std::string(length, 'a') + "\xFF" + std::string(20, 'b')), length);
}

TEST(Utf8, ReplacesEachMaximalIllFormedSequence) {
  std::string out;
  // b"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64".decode(errors="replace")
  EXPECT_EQ(append_valid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", out), 6u);
  EXPECT_EQ(out, "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
}

TEST(Utf8, ValidTextIsAppendedUnchanged) {
  std::string out = "x";
  EXPECT_EQ(append_valid_utf8("gr\u00FC\u00DFe \u4E16\U0001F600", out), 0u);
  EXPECT_EQ(out, "xgr\u00FC\u00DFe \u4E16\U0001F600");
}

TEST(Utf8, OtherEncodingsAreRecognized) {
  using namespace std::string_literals;
  EXPECT_EQ(wide_encoding("\xFF\xFEh\0"s), "UTF-16");
  EXPECT_EQ(wide_encoding("\xFE\xFF\0h"s), "UTF-16");
  EXPECT_EQ(wide_encoding("\xFF\xFE\0\0h\0\0\0"s), "UTF-32");
  EXPECT_EQ(wide_encoding("\0\0\xFE\xFF"s), "UTF-32");
  EXPECT_EQ(wide_encoding("t\0e\0x\0t\0"s), "UTF-16LE");
  EXPECT_EQ(wide_encoding("\0t\0e\0x\0t"s), "UTF-16BE");
  EXPECT_EQ(wide_encoding("{\0\0\0}\0\0\0"s), "UTF-32LE");
  EXPECT_EQ(wide_encoding("\0\0\0{\0\0\0}"s), "UTF-32BE");
  for (auto const& narrow :
       {""s, "text"s, "\xEF\xBB\xBFtext"s, "\0\0\0\0\0\0\0\0"s, "a\0b\0c\0d\0"s.substr(0, 7)})
    EXPECT_EQ(wide_encoding(narrow), "") << narrow;
  EXPECT_EQ(without_mark("\xEF\xBB\xBFtext"), "text");
  EXPECT_EQ(without_mark("text"), "text");
}

}  // namespace
}  // namespace tessera
