#include "tokenizer/regex.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  Regex const regex(pattern, "test");
  std::vector<std::string> out;
  Regex::Match match{};
  for (std::size_t at = 0; at < text.size() && regex.search(text, at, match); at = match.end)
    out.emplace_back(text.substr(match.begin, match.end - match.begin));
  return out;
}

TEST(Regex, FindsNonEmptyMatchesInOrder) {
  EXPECT_THAT(matches("a*", "baac"), ElementsAre("aa"));
  EXPECT_THAT(matches(R"( ?\p{L}+|\p{N}+)", "It is 42\u00B2 \u00E9t\u00E9"),
              ElementsAre("It", " is", "42\u00B2", " \u00E9t\u00E9"));
}

TEST(Regex, WhiteSpaceIsUnicodesProperty) {
  EXPECT_THAT(matches(R"(\s+)", "a\u00A0\u3000b\u180Ec\x1C"), ElementsAre("\u00A0\u3000"));
  EXPECT_THAT(matches(R"(\S+)", "a\u0085b\u180E"), ElementsAre("a", "b\u180E"));
  EXPECT_THAT(matches(R"([^\s\p{L}]+)", "ab 1!\u2028c"), ElementsAre("1!"));
}

TEST(Regex, KnowsLettersOfUnicode16) {
  EXPECT_THAT(matches(R"(\p{L}+)", "\U000105C0\uA7CB-"), ElementsAre("\U000105C0\uA7CB"));
  EXPECT_THAT(matches(R"([\p{Lu}]+)", "\u1C89\u1C8A"), ElementsAre("\u1C89"));
}

TEST(Regex, WordsAndDigitsAreThoseOfOniguruma) {
  EXPECT_THAT(matches(R"(\w+)", "a_\u00B2\u0301-\u24B6\u200Db"),
              ElementsAre("a_\u00B2\u0301", "\u24B6", "b"));
  EXPECT_THAT(matches(R"([\w]+)", "a\u00B2b"), ElementsAre("a", "b"));
  EXPECT_THAT(matches(R"([\d.]+)", "1.2\u0663\u00B2"), ElementsAre("1.2\u0663"));
  EXPECT_THAT(matches(R"(\W+\D\P{L})", "a- b1"), ElementsAre("- b1"));
}

TEST(Regex, AClassInsideAClassAddsItsMembers) {
  EXPECT_THAT(matches("[a[bc]d]+", "xabcdx[]"), ElementsAre("abcd"));
  EXPECT_THAT(matches(R"([^(\s|[.,!]。)]+)", "ab|c d.e。f"), ElementsAre("ab", "c", "d", "e", "f"));
}

TEST(Regex, QuotedTextMatchesItself) {
  std::string const text = R"(a.b*[c]\d^$|(e)+?{2}-#)";
  EXPECT_THAT(matches(Regex::quote(text), "x" + text + "y"), ElementsAre(text));
}

TEST(Regex, ErrorsNameTheField) {
  for (char const* bad : {"(", "[a[^b]]", "[a&&b]", "[a[:alpha:]]"}) {
    try {
      Regex const regex(bad, "pre_tokenizer");
      ADD_FAILURE() << bad << " was accepted";
    } catch (ConfigError const& e) {
      EXPECT_THAT(e.what(), ::testing::StartsWith(concat("pre_tokenizer: the pattern ", bad, " ")));
    }
  }
}

}  // namespace
}  // namespace tessera::data::detail
