#include "chat/value.hpp"

#include <gtest/gtest.h>

using namespace tessera::data::detail;
using tessera::ConfigTree;

namespace {

class ChatValue : public ::testing::Test {
 protected:
  Value of(std::string const& json) { return make_value(budget, ConfigTree::parse(json, "value")); }
  Budget budget{1'000'000, 1 << 20};
};

TEST_F(ChatValue, IsWrittenAsPythonWritesIt) {
  EXPECT_EQ(
      to_repr(of(R"([1, -2.5, 1e22, 1e-5, 1e15, true, null, "a'b", "a'\"b", {"k": []}])"), budget),
      R"([1, -2.5, 1e+22, 1e-05, 1000000000000000.0, True, None, "a'b", 'a\'"b', {'k': []}])");
  EXPECT_EQ(to_repr(of(R"("\u00e4\n\u200b\u0001\ud83d\ude00")"), budget),
            "'\u00e4\\n\\u200b\\x01\U0001f600'");
}

TEST_F(ChatValue, IsWrittenAsJsonDumpsWritesIt) {
  Value const value = of(R"({"b": [1, {}], "a": "\u00e4\ud83d\ude00\u0001\u007f/<"})");
  EXPECT_EQ(to_json(value, {}, budget),
            "{\"b\": [1, {}], \"a\": \"\u00e4\U0001f600\\u0001\x7f/<\"}");
  JsonStyle style;
  style.ascii = style.sorted = style.lines = true;
  style.indent = 1;
  style.item_separator = ",";
  EXPECT_EQ(to_json(value, style, budget),
            "{\n \"a\": \"\\u00e4\\ud83d\\ude00\\u0001\\u007f/<\",\n \"b\": [\n  1,\n  {}\n ]\n}");
}

TEST_F(ChatValue, GivesItsMemoryBack) {
  Budget small(100'000, 4'000);
  for (int i = 0; i < 100; ++i) make_text(small, std::string(2'000, 'x'));
  EXPECT_THROW(make_text(small, std::string(5'000, 'x')), TemplateError);
}

TEST_F(ChatValue, IsStrippedAsPythonStrips) {
  EXPECT_EQ(stripped("\u2003 a \x1c", true, true), "a");
  EXPECT_EQ(stripped("x\u00e4ax", true, false, "\u00e4x"), "ax");
}

TEST_F(ChatValue, ComparesNumbersOfDifferentKinds) {
  EXPECT_TRUE(equal(Value(true), Value(1.0), budget));
  EXPECT_TRUE(equal(of(R"({"a": 1, "b": 2})"), of(R"({"b": 2.0, "a": true})"), budget));
  EXPECT_FALSE(equal(of("[1]"), of("[2]"), budget));
  EXPECT_THROW(compare(of("1"), of("\"1\""), budget), TemplateError);
}

}  // namespace
