#include "launch/launch_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using testing::ElementsAre;

TEST(CommandWords, AScriptBecomesTheTrainer) {
  EXPECT_THAT(command_words({"run_clm.py", "--do_train"}, "/bin/tessera-train"),
              ElementsAre("/bin/tessera-train", "--do_train"));
  EXPECT_THAT(command_words({"run.json"}, "t"), ElementsAre("t", "run.json"));
  EXPECT_THAT(command_words({"--do_train"}, "t"), ElementsAre("t", "--do_train"));
  EXPECT_THAT(command_words({}, "t"), ElementsAre("t"));
  EXPECT_THAT(command_words({"run_clm.py", "run.json"}, "t"), ElementsAre("t", "run.json"));
}

TEST(CommandWords, OtherProgramsStay) {
  EXPECT_THAT(command_words({"hostname", "-f"}, "t"), ElementsAre("hostname", "-f"));
}

TEST(CommandWords, OnlyRunClmIsReplaced) {
  EXPECT_THAT(command_words({"../examples/run_clm.py", "-x"}, "t"), ElementsAre("t", "-x"));
  EXPECT_THROW(command_words({"train.py", "--lr", "1"}, "t"), UsageError);
  EXPECT_THROW(command_words({"my_run_clm.py"}, "t"), UsageError);
}

std::vector<std::string> separated(std::vector<std::string> words) {
  CLI::App app;
  add_launch(app);
  words.insert(words.begin(), "launch");
  words = launch_words(app, words);
  return {words.begin() + 1, words.end()};
}

/// The program's options may be named like those of the launcher.
TEST(SeparateProgram, WordsAfterTheProgramAreItsOwn) {
  EXPECT_THAT(separated({"--num_gpus", "2", "run_clm.py", "--log_level", "info"}),
              ElementsAre("--num_gpus", "2", "--", "run_clm.py", "--log_level", "info"));
  EXPECT_THAT(separated({"--nnodes=2", "-Hhosts", "--no_ssh", "run.json"}),
              ElementsAre("--nnodes=2", "-Hhosts", "--no_ssh", "--", "run.json"));
  EXPECT_THAT(separated({"--dry-run", "--", "--do_train"}),
              ElementsAre("--dry-run", "--", "--do_train"));
  EXPECT_THAT(separated({"--dry-run"}), ElementsAre("--dry-run"));
  EXPECT_THROW(separated({"--num_processes", "2", "run_clm.py"}), UsageError);
  EXPECT_THROW(separated({"--do_train"}), UsageError);
  CLI::App without;
  EXPECT_THAT(launch_words(without, {"launch", "--x"}), ElementsAre("launch", "--x"));
}

TEST(WithTrainingOptions, FollowTheCommandsOwn) {
  CLI::App app;
  std::string nodes;
  std::vector<std::string> options;
  bool json = false;
  auto* plan = app.add_subcommand("plan", "");
  plan->add_option("--nodes", nodes);
  plan->add_flag("--json", json);
  plan->add_option("options", options);
  auto* check = app.add_subcommand("config", "")->add_subcommand("check", "");
  check->add_option("options", options);
  app.add_subcommand("other", "")->add_option("--bf16", nodes);
  auto const words = [&](std::vector<std::string> given) {
    return with_training_options(app, std::move(given));
  };
  EXPECT_THAT(
      words({"plan", "--model_type", "gpt2", "--nodes", "2", "--no_bf16", "--json"}),
      ElementsAre("plan", "--nodes", "2", "--json", "--", "--model_type", "gpt2", "--no_bf16"));
  EXPECT_THAT(words({"plan", "run.json", "--nodes=2", "--", "--bf16"}),
              ElementsAre("plan", "run.json", "--nodes=2", "--", "--bf16"));
  EXPECT_THAT(words({"config", "check", "ds.json", "--learning_rate", "-1"}),
              ElementsAre("config", "check", "ds.json", "--", "--learning_rate", "-1"));
  EXPECT_THAT(words({"plan", "--noodes", "2"}), ElementsAre("plan", "--noodes", "2"));
  EXPECT_THAT(words({"other", "--bf16", "x"}), ElementsAre("other", "--bf16", "x"));
  EXPECT_THAT(words({"--version"}), ElementsAre("--version"));
}

/// tests/oracles/deepspeed_names.py: the options of DeepSpeed's launcher, each with its aliases.
TEST(AddLaunch, HasTheOptionsOfDeepSpeedsLauncher) {
  CLI::App app;
  add_launch(app);
  auto const* launch = app.get_subcommand("launch");
  auto const document = ConfigTree::read(TESSERA_TEST_DATA "/oracles/deepspeed_names.json");
  for (auto const& names : document.at("launcher").as_array()) {
    auto const& first = names.as_array().front().as_string();
    auto const* option = launch->get_option_no_throw(first);
    ASSERT_NE(option, nullptr) << first;
    for (auto const& alias : names.as_array())
      EXPECT_EQ(launch->get_option_no_throw(alias.as_string()), option) << alias.as_string();
  }
}

TEST(CountOf, IsANumberOrAll) {
  EXPECT_EQ(count_of("4", "--nnodes"), 4);
  for (char const* all : {"", "-1", "auto", "gpu", "cpu"})
    EXPECT_EQ(count_of(all, "x"), std::nullopt);
  for (char const* wrong : {"0", "-2", "1:4", "2x", "four"})
    EXPECT_THROW(count_of(wrong, "--nnodes"), UsageError) << wrong;
}

}  // namespace
}  // namespace tessera::cli
