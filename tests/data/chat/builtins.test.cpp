#include "chat/builtins.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tessera::data::detail;
using ::testing::HasSubstr;

namespace {

class ChatBuiltins : public ::testing::Test {
 protected:
  Value text(std::string bytes) { return make_text(budget, std::move(bytes)); }
  std::string failure(Value const& input, std::string_view filter, Arguments const& arguments) {
    try {
      apply_filter(interpreter, filter, input, arguments);
    } catch (TemplateError const& error) {
      return error.message;
    }
    return "";
  }
  Budget budget{100'000, 1 << 20};
  Interpreter interpreter{budget, {}};
};

TEST_F(ChatBuiltins, TakeArgumentsByPlaceAndByName) {
  Value const input = text("aaa");
  Arguments const named{{text("a")}, {{"new", text("b")}, {"count", Value(std::int64_t{1})}}};
  EXPECT_EQ(apply_filter(interpreter, "replace", input, named).text()->bytes, "baa");
  EXPECT_THAT(failure(input, "replace", {{text("a"), text("b")}, {{"new", text("c")}}}),
              HasSubstr("gets 'new' twice"));
  EXPECT_THAT(failure(input, "trim", {{}, {{"x", text("c")}}}), HasSubstr("takes only chars"));
  EXPECT_THAT(failure(input, "replace", {}), HasSubstr("needs an argument"));
  EXPECT_THAT(failure(input, "nothing", {}), HasSubstr("known are abs, attr"));
}

TEST_F(ChatBuiltins, HaveNoMethodsThatChangeValues) {
  Value const list = make_list(budget, {}), dict = make_dict(budget, {});
  for (char const* name : {"append", "pop", "extend", "insert", "clear", "update", "setdefault"}) {
    EXPECT_FALSE(has_method(list, name));
    EXPECT_FALSE(has_method(dict, name));
  }
}

}  // namespace
