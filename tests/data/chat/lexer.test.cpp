#include <gtest/gtest.h>

#include "chat/syntax.hpp"

using namespace tessera::data::detail;

namespace {

/// The text between tags; a tag is a bar.
std::string texts(std::string const& source) {
  std::string out;
  for (auto const& token : tokenize_template(source)) {
    if (token.kind == Token::Kind::data) out += token.value;
    if (token.value == "%}" || token.value == "}}") out += '|';
  }
  return out;
}

TEST(ChatLexer, TrimsAroundTags) {
  EXPECT_EQ(texts("a\n  {% x %}  \n b"), "a\n|  \n b");
  EXPECT_EQ(texts("a\n  {% x %}\n b\n"), "a\n| b");
  EXPECT_EQ(texts("a  {% x %}b"), "a  |b");
  EXPECT_EQ(texts("a \n {%- x -%} \n b"), "a|b");
  EXPECT_EQ(texts(" {%+ x +%}\nb"), " |\nb");
  EXPECT_EQ(texts("a\n  {{ x }}\nb"), "a\n  |\nb");
  EXPECT_EQ(texts("a {# {% y %} -#}\n b"), "a b");
  EXPECT_EQ(texts("{x} {"), "{x} {");
  EXPECT_EQ(texts("\u00a0{%- x -%}\u2003b"), "|b");
}

TEST(ChatLexer, ReadsLiterals) {
  auto const tokens = tokenize_template("{{ 'a\\n\\'\\d' 100 x.y }}");
  ASSERT_EQ(tokens.size(), 8U);
  EXPECT_EQ(tokens[1].value, "a\n'\\d");
  EXPECT_EQ(tokens[2].value, "100");
  EXPECT_EQ(tokens[5].value, "y");
  for (char const* refused : {"{{ '\\u00e4' }}", "{{ 0x1f }}", "{{ 1.5 }}", "{{ 1_000 }}"})
    EXPECT_THROW(tokenize_template(refused), SyntaxError) << refused;
}

TEST(ChatLexer, CountsLines) {
  EXPECT_EQ(tokenize_template("a\r\nb\rc\n{{ x }}")[1].line, 4);
  EXPECT_THROW(tokenize_template("{{ ) }}"), SyntaxError);
  EXPECT_THROW(tokenize_template("{# x"), SyntaxError);
}

}  // namespace
