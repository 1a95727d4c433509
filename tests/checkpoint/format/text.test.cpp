#include "format/detail/json_reader.hpp"

#include <gtest/gtest.h>

#include "tessera/core/config_tree.hpp"

namespace tessera::checkpoint::detail {
namespace {

TEST(Text, ListsAreJson) {
  EXPECT_EQ(list_text(std::vector<std::int64_t>{}), "[]");
  EXPECT_EQ(list_text(std::vector<std::int64_t>{2, -3}), "[2, -3]");
  EXPECT_EQ(list_text(std::vector<std::string>{"a", "b\"c"}), "[\"a\", \"b\\\"c\"]");
}

TEST(Text, QuotesAreReadBack) {
  for (std::string const& text : {std::string("plain"), std::string("\"\\\n\t"),
                                  std::string("\x01", 1), std::string("\xc3\xa9")})
    EXPECT_EQ(ConfigTree::parse(json_quote(text), "test").as_string(), text);
}

}  // namespace
}  // namespace tessera::checkpoint::detail
