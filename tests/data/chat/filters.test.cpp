#include "chat/builtins.hpp"

#include <gtest/gtest.h>

using namespace tessera::data::detail;

namespace {

/// A generator has a truth value and no length, and can be read once, as in Jinja.
TEST(ChatFilters, MakeGenerators) {
  Budget budget(100'000, 1 << 20);
  Interpreter interpreter(budget, {});
  Value const input = make_list(budget, {Value(std::int64_t{0}), Value(std::int64_t{2})});
  Value const chosen = apply_filter(interpreter, "select", input, {});
  EXPECT_TRUE(truth(chosen));
  EXPECT_THROW(apply_filter(interpreter, "length", chosen, {}), TemplateError);
  EXPECT_EQ(to_repr(apply_filter(interpreter, "list", chosen, {}), budget), "[2]");
  EXPECT_EQ(to_repr(apply_filter(interpreter, "list", chosen, {}), budget), "[]");
}

}  // namespace
