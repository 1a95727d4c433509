#include "tessera/config/word_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "small_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum OptionType;

std::string usage_error(std::vector<std::string> const& words) {
  try {
    flags(words);
  } catch (UsageError const& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return "";
}

struct Spelling {
  std::vector<std::string> words;
  char const* name;
  ConfigTree value;
};

TEST(WordReader, FlagsInEverySpelling) {
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

TEST(WordReader, AllUnknownNamesAreInOneMessage) {
  EXPECT_THAT(usage_error({"--lerning_rate", "1", "--bf16", "--xyzzy=2", "--max_step", "3", "4"}),
              HasSubstr("unknown options --lerning_rate (did you mean --learning_rate?), --xyzzy, "
                        "--max_step (did you mean --max_steps?); see tessera-train --help"));
}

TEST(WordReader, WrongFlagsNameTheMistake) {
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
           {{"--report_to", "--bf16"}, "--report_to needs a list of some of"},
       })
    EXPECT_THAT(usage_error(words), HasSubstr(part)) << words.front();
}

TEST(WordReader, WordsBeforeTheFirstFlagArePositional) {
  std::vector<std::string> positionals;
  parse_flags(table(), {"run.json", "--bf16"}, positionals);
  EXPECT_THAT(positionals, ElementsAre("run.json"));
}

}  // namespace
}  // namespace tessera::config
