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

/// tests/oracles/deepspeed_names.py: the options of DeepSpeed's launcher, each with its aliases.
TEST(AddLaunch, HasTheOptionsOfDeepSpeedsLauncher) {
  Command app("tessera");
  add_launch(app);
  auto const table = app.commands().front()->rows();
  auto const find = [&](std::string const& name) -> config::Option const* {
    if (name.starts_with("--")) return table.find(name.substr(2));
    for (auto const& option : table.options())
      if (option.letter == name[1]) return &option;
    return nullptr;
  };
  auto const document = ConfigTree::read(TESSERA_TEST_DATA "/oracles/deepspeed_names.json");
  for (auto const& names : document.at("launcher").as_array()) {
    auto const* option = find(names.as_array().front().as_string());
    ASSERT_NE(option, nullptr) << names.dump();
    for (auto const& alias : names.as_array())
      EXPECT_EQ(find(alias.as_string()), option) << alias.as_string();
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
