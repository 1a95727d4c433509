#include "chat/lexer.hpp"

#include <gtest/gtest.h>

using namespace tessera::data::detail;

namespace {

/// The text between tags; a tag is a bar.
std::string texts(std::string const& source) {
  std::string out;
  for (auto const& token : tokenize_template(source)) {
    if (token.kind == Token::Kind::text) out += token.value;
    if (token.kind == Token::Kind::block_end || token.kind == Token::Kind::variable_end) out += '|';
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
  EXPECT_EQ(texts("{% raw %} {{ x }}\n {% endraw %}\nb"), " {{ x }}\nb");
  EXPECT_EQ(texts("\u00a0{%- x -%}\u2003b"), "|b");
}

TEST(ChatLexer, ReadsLiterals) {
  auto const tokens = tokenize_template("{{ 'a\\n\\u00e4\\x41\\'' 1_000 2.5e3 x.0 }}");
  ASSERT_EQ(tokens.size(), 9U);
  EXPECT_EQ(tokens[1].value, "a\n\u00e4A'");
  EXPECT_EQ(tokens[2].value, "1000");
  EXPECT_EQ(tokens[3].value, "2.5e3");
  EXPECT_EQ(tokens[6].value, "0");
}

TEST(ChatLexer, CountsLines) {
  EXPECT_EQ(tokenize_template("a\r\nb\rc\n{{ x }}")[1].line, 4);
  EXPECT_THROW(tokenize_template("{{ ) }}"), SyntaxError);
  EXPECT_THROW(tokenize_template("{{ 0x1f }}"), SyntaxError);
  EXPECT_THROW(tokenize_template("{# x"), SyntaxError);
}

}  // namespace
