#include "tokenizer/token_decoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TemplateIds read(std::string const& json) {
  return read_post_processor(ConfigTree::parse(json, "test"), "post_processor");
}

std::string const begin_and_end = R"({"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "</s>", "type_id": 0}}],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [7, 8]}, "</s>": {"id": "</s>", "ids": [9]}}})";

TEST(PostProcessor, ByteLevelAndNullAddNothing) {
  for (char const* json : {"null", R"({"type": "ByteLevel"})"}) {
    EXPECT_THAT(read(json).prefix, IsEmpty());
    EXPECT_THAT(read(json).suffix, IsEmpty());
  }
}

TEST(PostProcessor, ATemplateAddsItsTokensAroundTheText) {
  EXPECT_THAT(read(begin_and_end).prefix, ElementsAre(7, 8));
  EXPECT_THAT(read(begin_and_end).suffix, ElementsAre(9));
}

TEST(PostProcessor, LaterStepsOfASequenceAreFurtherOut) {
  std::string const outer = R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"x": {"id": "x", "ids": [1]}}})";
  TemplateIds const ids = read(R"({"type": "Sequence", "processors": [)" + begin_and_end + ", " +
                               outer + R"(, {"type": "ByteLevel"}]})");
  EXPECT_THAT(ids.prefix, ElementsAre(1, 7, 8));
  EXPECT_THAT(ids.suffix, ElementsAre(9));
}

TEST(PostProcessor, BertAndRobertaNameTheTokensAtTheEnds) {
  for (char const* type : {"BertProcessing", "RobertaProcessing"}) {
    auto const ids =
        read(std::string(R"({"sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "type": ")") + type + "\"}");
    EXPECT_THAT(ids.prefix, ElementsAre(2));
    EXPECT_THAT(ids.suffix, ElementsAre(3));
  }
}

TEST(PostProcessor, RejectsOtherTypesAndTemplatesWithoutTheText) {
  EXPECT_THROW(read(R"({"type": "Offsets"})"), ConfigError);
  EXPECT_THROW(read(R"({"type": "BertProcessing", "sep": ["s", -1], "cls": ["c", 1]})"), DataError);
  EXPECT_THROW(read(R"({"type": "TemplateProcessing", "single": [], "special_tokens": {}})"),
               DataError);
}

}  // namespace
}  // namespace tessera::data::detail
