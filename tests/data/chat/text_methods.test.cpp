#include "chat/builtins.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tessera::data::detail;
using ::testing::ElementsAre;

namespace {

TEST(ChatTextMethods, AreThoseOfPython) {
  Budget budget(100'000, 1 << 20);
  EXPECT_EQ(stripped("\u2003 a \x1c", nullptr, true, true), "a");
  Value const set = make_text(budget, "\u00e4x");
  EXPECT_EQ(stripped("x\u00e4ax", &set, true, false), "ax");
  EXPECT_EQ(replaced("aaa", "a", "bb", 2, budget), "bbbba");
  EXPECT_EQ(replaced("\u00e4b", "", "-", -1, budget), "-\u00e4-b-");
  EXPECT_EQ(in_upper_case("stra\u00dfe \u00e4"), "STRASSE \u00c4");
  EXPECT_EQ(capitalized("hELLO"), "Hello");
  EXPECT_THAT(lines_of("a\r\n\nb\u2028c"), ElementsAre("a", "", "b", "c"));
}

}  // namespace
