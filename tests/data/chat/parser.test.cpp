#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/data/chat/chat_template.hpp"

using tessera::DataError;
using tessera::data::ChatTemplate;
using ::testing::HasSubstr;

namespace {

TEST(ChatParser, RefusesWhatItDoesNotKnowBeforeItRuns) {
  auto const error = [](std::string const& source) {
    return tessera::error_of<DataError>([&] { ChatTemplate(source, "t"); });
  };
  EXPECT_THAT(error("a\n{% include 'x' %}"), HasSubstr("t line 2: the tag {% include %}"));
  EXPECT_THAT(error("{{ x | urlize }}"), HasSubstr("the filter 'urlize' is not supported"));
  EXPECT_THAT(error("{% raw %}{{ {% endraw %}"), HasSubstr("the tag {% raw %} is not supported"));
  EXPECT_THAT(error("{{ 1 < 2 < 3 }}"), HasSubstr("a chain of comparisons is not supported"));
  EXPECT_THAT(error("{{ 1 / 2 }}"), HasSubstr("the operator / is not supported"));
  EXPECT_THAT(error("{{ x is escaped }}"), HasSubstr("the test 'escaped' is not supported"));
  EXPECT_THAT(error("{% for x in y recursive %}{% endfor %}"), HasSubstr("a recursive loop"));
  EXPECT_THAT(error("{{ f(*x) }}"), HasSubstr("a call with * or **"));
  EXPECT_THAT(error("{% if x %}"), HasSubstr("{% endif %} is expected before the end"));
  EXPECT_THAT(error("{{ 'x }}"), HasSubstr("a string is not closed"));
  EXPECT_THAT(error("{{ x"), HasSubstr("a tag is not closed"));
  EXPECT_THAT(error("{% break %}"), HasSubstr("outside of a loop"));
  EXPECT_THAT(error(std::string(1000, '(')), ::testing::IsEmpty());  // text
  EXPECT_THAT(error("{{" + std::string(1000, '(') + "1" + std::string(1000, ')') + "}}"),
              HasSubstr("nested too deep"));
  EXPECT_THAT(error("{{ 1" + std::string(1000, '+') + "1 }}"), HasSubstr("nested too deep"));
}

}  // namespace
