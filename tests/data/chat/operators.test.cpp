#include "chat/interpreter.hpp"

#include <gtest/gtest.h>

#include <limits>

using namespace tessera::data::detail;

namespace {

TEST(ChatOperators, RefuseNumbersBeyond64Bits) {
  Budget budget(100'000, 1 << 20);
  Value const most(std::numeric_limits<std::int64_t>::max()), least(-most.integer() - 1);
  Value const one(std::int64_t{1}), minus(std::int64_t{-1}), zero(std::int64_t{0});
  struct Case {
    char const* name;
    Value a, b;
  };
  for (auto const& [name, a, b] : std::vector<Case>{{"+", most, one},
                                                    {"-", least, one},
                                                    {"*", most, most},
                                                    {"//", least, minus},
                                                    {"**", most, most},
                                                    {"%", one, zero},
                                                    {"/", one, zero}})
    EXPECT_THROW(arithmetic(name, a, b, budget), TemplateError) << name;
  EXPECT_THROW(negated(least), TemplateError);
  EXPECT_EQ(arithmetic("%", least, minus, budget).integer(), 0);
  EXPECT_EQ(arithmetic("**", minus, most, budget).integer(), -1);
}

}  // namespace
