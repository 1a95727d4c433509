#include "tessera/config/option_values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "small_table.hpp"
#include "tessera/config/word_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum OptionType;

std::string key_error(std::string const& text) {
  try {
    parse_flat(table(), ConfigTree::parse(text, "run.json"), "run.json");
  } catch (ConfigError const& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_config);
    return e.what();
  }
  return "";
}

TEST(OptionValues, KeysAreCheckedAndTyped) {
  auto const values = parse_flat(
      table(),
      ConfigTree::parse(R"({"max_steps": 1e3, "bf16": true, "report_to": "all", "scale": null,
      "learning_rate": 1, "fsdp": "", "push": false})",
                        "run.json"),
      "run.json");
  EXPECT_TRUE(values.value(table(), "max_steps").is_int());
  EXPECT_EQ(values.value(table(), "learning_rate"), ConfigTree(1.0));
  EXPECT_EQ(values.value(table(), "report_to"), ConfigTree(ConfigTree::Array{"all"}));
  EXPECT_FALSE(values.given("scale"));
  EXPECT_FALSE(values.given("fsdp"));
  EXPECT_EQ(values.origin("bf16"), Origin::run_file);
  EXPECT_THAT(key_error(R"({"max_step": 1})"),
              HasSubstr("run.json: unknown key max_step; did you mean max_steps?"));
  EXPECT_EQ(key_error(R"({"max_step": 1, "bf16": true, "xyzzy": 2})"),
            "run.json: 2 unknown keys: max_step (did you mean max_steps?), xyzzy (remove it)");
  EXPECT_THAT(key_error(R"({"max_steps": "10"})"),
              HasSubstr(R"(run.json: max_steps is "10" (a string); it must be an integer)"));
  EXPECT_THAT(key_error(R"({"bf16": 1})"),
              HasSubstr("bf16 is an integer 1; it must be true or false"));
  EXPECT_THAT(key_error(R"({"bf16": true, "brain": true})"),
              HasSubstr("bf16 and brain are two names of one key"));
  EXPECT_THAT(key_error("[1]"), HasSubstr("must hold a JSON object"));
}

TEST(OptionValues, NestedKeysAreWalkedToEveryLevel) {
  OptionTable t;
  t.add(integer, "zero.stage", 0, "stage");
  t.add(choice, "zero.offload.device", "none", "where").one_of({"none"}).except("cpu", "not yet");
  t.add(json, "elasticity", {}, "sizes").refuse("remove it");
  auto const read = [&](std::string const& text) {
    return parse_nested(t, ConfigTree::parse(text, "ds"), "ds");
  };
  auto const error = [&](std::string const& text) -> std::string {
    try {
      read(text);
    } catch (ConfigError const& e) {
      return e.what();
    }
    return "";
  };
  auto const values =
      read(R"({"zero": {"stage": 2.0, "offload": {"device": "none"}}, "elasticity": {}})");
  EXPECT_EQ(values.value(t, "zero.stage"), ConfigTree(2));
  EXPECT_FALSE(values.given("elasticity"));
  EXPECT_THAT(error(R"({"zero": {"offload": {"devise": "cpu"}}})"),
              HasSubstr("unknown key zero.offload.devise; did you mean zero.offload.device?"));
  EXPECT_THAT(error(R"({"zero": {"offlod": {}}})"), HasSubstr("did you mean zero.offload?"));
  EXPECT_THAT(error(R"({"stage": 1})"), HasSubstr("unknown key stage; did you mean zero.stage?"));
  EXPECT_THAT(error(R"({"zero": 3})"), HasSubstr("zero must be a block {...}"));
  EXPECT_THAT(error(R"({"zero": {"stage": "auto"}})"), HasSubstr("must be an integer"));
  for (char const* block : {"true", "false"})
    EXPECT_THAT(error(concat(R"({"elasticity": {"enabled": )", block, "}}")),
                HasSubstr("elasticity is not supported: remove it"));
  EXPECT_THAT(error(R"({"zero": {"offload": {"device": "cpu"}}})"), HasSubstr("not yet"));
}

TEST(OptionValues, HintsSpeakOnlyWhenGivenOtherwise) {
  EXPECT_THAT(flags({"--compile", "--workers", "0"}).hints(table()),
              ElementsAre("compile: no effect here"));
}

}  // namespace
}  // namespace tessera::config
