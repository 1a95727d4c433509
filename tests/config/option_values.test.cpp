#include "tessera/config/option_values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "small_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum OptionType;

OptionValues flags(std::vector<std::string> const& words) {
  std::vector<std::string> positionals;
  return parse_flags(table(), words, positionals);
}

std::string usage_error(std::vector<std::string> const& words) {
  try {
    flags(words);
  } catch (UsageError const& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return "";
}

std::string key_error(std::string const& text) {
  try {
    parse_flat(table(), ConfigTree::parse(text, "run.json"), "run.json");
  } catch (ConfigError const& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_config);
    return e.what();
  }
  return "";
}

struct Spelling {
  std::vector<std::string> words;
  char const* name;
  ConfigTree value;
};

TEST(OptionValues, FlagsInEverySpelling) {
  for (auto const& [words, name, value] : std::vector<Spelling>{
           {{"--max_steps", "-1"}, "max_steps", -1},
           {{"--max-steps=20"}, "max_steps", 20},
           {{"--max_steps", "1e3"}, "max_steps", 1000},
           {{"--learning_rate", "3e-4"}, "learning_rate", 3e-4},
           {{"--learning_rate=1"}, "learning_rate", 1.0},
           {{"--learning_rate", "auto"}, "learning_rate", "auto"},
           {{"--bf16"}, "bf16", true},
           {{"--bf16", "False"}, "bf16", false},
           {{"--bf16=1"}, "bf16", true},
           {{"--brain", "yes"}, "bf16", true},
           {{"--no_bf16"}, "bf16", false},
           {{"--no-keep"}, "keep", false},
           {{"--no_cuda"}, "no_cuda", true},
           {{"--bf16", "--max_steps", "3"}, "bf16", true},
           {{"--strategy", "no"}, "strategy", "no"},
           {{"--report_to", "none", "all", "--bf16"},
            "report_to",
            ConfigTree::Array{"none", "all"}},
           {{"--output_dir", "a b"}, "output_dir", "a b"},
           {{"--prompt", "-3 degrees"}, "prompt", "-3 degrees"},
           {{"--prompt=--x"}, "prompt", "--x"},
           {{"--deepspeed", "ds.json"}, "deepspeed", "ds.json"},
           {{"--deepspeed", R"({"a": 1})"}, "deepspeed", ConfigTree::object().set("a", 1)},
           {{"--stage", "1", "--stage", "2"}, "stage", 2},
           {{"-h"}, "help", true},
           {{"--push", "false"}, "push", false},
       }) {
    auto const values = flags(words);
    ASSERT_TRUE(values.given(name)) << words.front();
    EXPECT_EQ(values.value(table(), name), value) << words.front();
    EXPECT_EQ(values.origin(name), Origin::flag);
  }
}

struct Mistake {
  std::vector<std::string> words;
  char const* part;
};

TEST(OptionValues, AllUnknownNamesAreInOneMessage) {
  EXPECT_THAT(usage_error({"--lerning_rate", "1", "--bf16", "--xyzzy=2", "--max_step", "3", "4"}),
              HasSubstr("unknown options --lerning_rate (did you mean --learning_rate?), --xyzzy, "
                        "--max_step (did you mean --max_steps?); see tessera-train --help"));
  EXPECT_EQ(key_error(R"({"max_step": 1, "bf16": true, "xyzzy": 2})"),
            "run.json: 2 unknown keys: max_step (did you mean max_steps?), xyzzy (remove it)");
}

TEST(OptionValues, WrongFlagsNameTheMistake) {
  for (auto const& [words, part] : std::vector<Mistake>{
           {{"--lerning_rate", "1"},
            "unknown option --lerning_rate; did you mean --learning_rate?"},
           {{"--learning-rat=1"}, "did you mean --learning_rate?"},
           {{"--xyzzy"}, "unknown option --xyzzy; see tessera-train --help"},
           {{"--no_stage"}, "unknown option --no_stage"},
           {{"-bf16"}, "unknown option -bf16; did you mean --bf16?"},
           {{"--max_steps", "ten"}, "--max_steps is \"ten\"; it must be an integer of at least -1"},
           {{"--max_steps", "1.5"}, "must be an integer"},
           {{"--max_steps"}, "--max_steps needs an integer"},
           {{"--stage", "4"}, "--stage is 4; it must be an integer from 0 to 3"},
           {{"--scale", "0"}, "must be a number above 0"},
           {{"--scale", "nan"}, "must be a number above 0"},
           {{"--learning_rate=-1"}, "must be a number of at least 0 or \"auto\""},
           {{"--bf16", "maybe"}, "it must be true or false"},
           {{"--strategy", "step"}, "it must be one of no, steps; did you mean steps?"},
           {{"--strategy", "best"}, "--strategy \"best\" is not supported: use steps"},
           {{"--report_to", "wandb"}, "metrics.jsonl has it"},
           {{"--push"}, "--push is not supported: nothing is uploaded; copy it"},
           {{"--fsdp", "full_shard"}, "use stage 3"},
           {{"--bf16", "true", "word"}, "unexpected word 'word' after --bf16"},
           {{"--deepspeed", "{\"a\": }"}, "not valid JSON"},
           {{"--no_bf16=true"}, "takes no value"},
       })
    EXPECT_THAT(usage_error(words), HasSubstr(part)) << words.front();
}

TEST(OptionValues, WordsBeforeTheFirstFlagArePositional) {
  std::vector<std::string> positionals;
  parse_flags(table(), {"run.json", "--bf16"}, positionals);
  EXPECT_THAT(positionals, ElementsAre("run.json"));
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
