#include "chat/interpreter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/data/chat/chat_template.hpp"

using tessera::ConfigTree;
using tessera::data::ChatError;
using tessera::data::ChatTemplate;
using tessera::data::Conversation;
using ::testing::HasSubstr;

namespace {

Conversation hello() {
  Conversation out;
  out.messages = ConfigTree::parse(R"([{"role": "user", "content": "hi"}])", "messages");
  return out;
}

std::string rendered(std::string const& source) {
  return ChatTemplate(source, "t").render(hello()).text;
}

/// What rendering with small limits says.
std::string exhausted(std::string const& source) {
  ChatTemplate limited(source, "t");
  limited.set_limits({200'000, 1 << 20});
  return tessera::error_of<ChatError>([&] { limited.render(hello()); });
}

TEST(ChatInterpreter, RefusesWhatTheSandboxRefuses) {
  EXPECT_THROW(rendered("{{ messages.append(1) }}"), ChatError);
  EXPECT_THROW(rendered("{% set n = namespace(_x=1) %}{{ n._x }}"), ChatError);
  EXPECT_THROW(rendered("{{ messages.__class__.__mro__ }}"), ChatError);
  EXPECT_EQ(rendered("{{ messages.__class__ }}"), "");
}

TEST(ChatInterpreter, NamesWhatIsNotSupported) {
  EXPECT_THAT(exhausted("{{ 'a'.rsplit(' ') }}"),
              HasSubstr("the method 'rsplit' is not supported; known are capitalize, endswith"));
  EXPECT_THAT(exhausted("{{ messages[0].pop('role') }}"), HasSubstr("the method 'pop'"));
  EXPECT_THAT(exhausted("{% for m in messages %}{{ loop.depth }}{% endfor %}"),
              HasSubstr("loop.depth is not supported"));
  EXPECT_THAT(exhausted("{{ 'a' * 2 }}"), HasSubstr("'*' is not supported between str and int"));
  EXPECT_THAT(exhausted("{{ {1: 2} }}"), HasSubstr("a int as a key of a dict is not supported"));
}

TEST(ChatInterpreter, RefusesNumbersBeyond64Bits) {
  for (char const* expression :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775807 * 2",
        "(-9223372036854775807 - 1) // -1", "-(-9223372036854775807 - 1)"})
    EXPECT_THAT(exhausted(std::string("{{ ") + expression + " }}"), HasSubstr("beyond 64 bits"))
        << expression;
  EXPECT_THAT(exhausted("{{ 1 % 0 }}"), HasSubstr("divided by zero"));
}

TEST(ChatInterpreter, BoundsStepsMemoryAndDepth) {
  EXPECT_THAT(exhausted("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}"
                        "{% endfor %}"),
              HasSubstr("more steps"));
  EXPECT_THAT(exhausted("{{ range(99999) }}"), HasSubstr("of memory"));
  EXPECT_THAT(exhausted("{% set n = namespace(s='x') %}{% for i in range(60) %}"
                        "{% set n.s = n.s ~ n.s %}{% endfor %}"),
              HasSubstr("the template needs more"));
  EXPECT_THAT(exhausted("{% set n = namespace(s=[]) %}{% for i in range(600) %}"
                        "{% set n.s = [n.s] %}{% endfor %}"),
              HasSubstr("levels deep"));
  EXPECT_THAT(exhausted("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"),
              HasSubstr("nested too deep"));
  EXPECT_EQ(exhausted("{% set n = namespace() %}{% set n.n = [n] %}"), "");  // a cycle
}

}  // namespace
