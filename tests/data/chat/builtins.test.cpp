#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/interpreter.hpp"

using namespace tessera::data::detail;
using ::testing::HasSubstr;

namespace {

class ChatBuiltins : public ::testing::Test {
 protected:
  Value text(std::string bytes) { return make_text(budget, std::move(bytes)); }
  Value filter(std::string_view name, Value const& input, Arguments const& arguments = {}) {
    return interpreter.apply(Builtin::Kind::filter, name, input, arguments);
  }
  std::string failure(std::string_view name, Arguments const& arguments) {
    try {
      filter(name, text("aaa"), arguments);
    } catch (TemplateError const& error) {
      return error.message;
    }
    return "";
  }
  Budget budget{100'000, 1 << 20};
  Interpreter interpreter{budget, {}};
};

TEST_F(ChatBuiltins, TakeArgumentsByPlaceAndByName) {
  Arguments const named{{text("a")}, {{"new", text("b")}}};
  EXPECT_EQ(filter("replace", text("aaa"), named).text()->bytes, "bbb");
  EXPECT_THAT(failure("replace", {{text("a"), text("b")}, {{"new", text("c")}}}),
              HasSubstr("gets 'new' twice"));
  EXPECT_THAT(failure("trim", {{}, {{"x", text("c")}}}), HasSubstr("has no parameter 'x'"));
  EXPECT_THAT(failure("replace", {}), HasSubstr("replace needs the argument 'old'"));
  EXPECT_THAT(failure("nothing", {}), HasSubstr("known are capitalize, count"));
}

/// A generator has a truth value and no length, and can be read once, as in Jinja.
TEST_F(ChatBuiltins, MakeGenerators) {
  Value const input = make_list(budget, {Value(std::int64_t{0}), Value(std::int64_t{2})});
  Value const chosen = filter("select", input);
  EXPECT_TRUE(truth(chosen));
  EXPECT_THROW(filter("length", chosen), TemplateError);
  EXPECT_EQ(to_repr(filter("list", chosen), budget), "[2]");
  EXPECT_EQ(to_repr(filter("list", chosen), budget), "[]");
}

TEST_F(ChatBuiltins, HaveNoMethodsThatChangeValues) {
  Value const list = make_list(budget, {}), dict = make_dict(budget, {});
  for (char const* name : {"append", "pop", "extend", "insert", "clear", "update", "setdefault"}) {
    EXPECT_FALSE(find_method(list, name));
    EXPECT_FALSE(find_method(dict, name));
  }
}

}  // namespace
