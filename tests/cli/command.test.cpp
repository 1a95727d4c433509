#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.hpp"

namespace tessera::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

struct Tools {
  Command app{"tessera", "tools"};
  std::string directory, dtype, tag = "latest";
  int keep = 0, ranks = 0;
  double tolerance = 0;
  bool dry_run = false;
  Words rest, states, operations;

  Tools() {
    auto& group = app.add_command("checkpoint", "");
    auto& prune = group.add_command("prune", "Remove old ones");
    prune.add("directory", directory, "run directory").required();
    prune.add("--keep", keep, "").at_least(1);
    prune.add("--ranks", ranks, "number of ranks").needs("keep");
    prune.add("-t,--tolerance", tolerance, "");
    prune.add("--dtype", dtype, "").one_of({"fp32", "bf16"}).excludes("tag");
    prune.add("--dry-run", dry_run, "");
    prune.add("--tag", tag, "checkpoint to use");
    prune.add("--states", states, "");
    prune.add("--operations", operations, "").by_commas().one_of({"reduce", "gather"});
    group.add_command("verify", "");
    for (auto const& [name, kind] :
         {std::pair("plan", Command::Rest::training), std::pair("submit", Command::Rest::own),
          std::pair("launch", Command::Rest::program)}) {
      auto& command = app.add_command(name, "");
      command.add("--ranks", ranks, "");
      command.add_rest("words", rest, "", kind);
    }
  }
};

/// What a small program of the same kind says about @p words.
std::string said(Words const& words) {
  Tools tools;
  try {
    tools.app(words);
  } catch (UsageError const& error) {
    return error.what();
  }
  return "accepted";
}

TEST(UsageErrors, NameTheNearestCommandAndTheHelpThatLists) {
  EXPECT_EQ(said({}),
            "tessera needs a command: checkpoint, plan, submit, launch; see tessera --help");
  EXPECT_EQ(said({"chekpoint"}),
            "unknown command 'chekpoint'; did you mean checkpoint?; see tessera --help");
  EXPECT_EQ(said({"checkpoint"}),
            "tessera checkpoint needs a command: prune, verify; see tessera checkpoint --help");
  EXPECT_EQ(said({"checkpoint", "verfy", "x"}),
            "unknown command 'verfy'; did you mean verify?; see tessera checkpoint --help");
}

TEST(UsageErrors, NameTheNearestOption) {
  std::string const help = "; see tessera checkpoint prune --help";
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--kep=3"}),
            "unknown option --kep; did you mean --keep?" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--entirely-different"}),
            "unknown option --entirely-different" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "--dry-run"}),
            "argument directory is missing (run directory)" + help);
  EXPECT_EQ(
      said({"checkpoint", "prune", "x", "--keep"}),
      "--keep needs an integer of at least 1; write --keep=VALUE if the value starts with a dash" +
          help);
  EXPECT_EQ(
      said({"checkpoint", "prune", "x", "-t"}),
      "--tolerance needs a number; write --tolerance=VALUE if the value starts with a dash" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "y"}), "unexpected argument 'y'" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "y", "z"}), "unexpected arguments 'y' 'z'" + help);
}

TEST(UsageErrors, QuoteTheValue) {
  std::string const help = "; see tessera checkpoint prune --help";
  for (std::string const value : {"0", "-1"})
    EXPECT_EQ(said({"checkpoint", "prune", "x", "--keep", value}),
              "--keep is " + value + "; it must be an integer of at least 1" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--keep", "many"}),
            "--keep is \"many\"; it must be an integer of at least 1" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--keep", "99999999999"}),
            "--keep is 99999999999; it must be at most 2147483647" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "-t", "low"}),
            "--tolerance is \"low\"; it must be a number" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--dtype", "bf61"}),
            "--dtype is \"bf61\"; it must be one of fp32, bf16; did you mean bf16?" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--keep", "3"}), "accepted");
}

TEST(UsageErrors, NameWhatBelongsTogether) {
  std::string const help = "; see tessera checkpoint prune --help";
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--ranks", "2"}), "--ranks needs --keep" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--dtype", "fp32", "--tag", "1"}),
            "--dtype and --tag contradict each other; leave one out" + help);
}

TEST(UsageErrors, NameTheNearestOptionOfBothTables) {
  std::string const help = "; see tessera plan --help";
  EXPECT_EQ(said({"plan", "--rnaks", "2"}), "unknown option --rnaks; did you mean --ranks?" + help);
  EXPECT_EQ(said({"plan", "--config_nam", "d"}),
            "unknown option --config_nam; did you mean --config_name?" + help);
  EXPECT_EQ(said({"plan", "--reduce_bucket_size", "1"}),
            "unknown option --reduce_bucket_size; zero_optimization.reduce_bucket_size is a key of "
            "the DeepSpeed JSON, which --deepspeed FILE reads" +
                help);
  EXPECT_EQ(said({"plan", "--rnaks", "2", "--xyzzy=1", "--ranks", "2"}),
            "unknown options --rnaks (did you mean --ranks?), --xyzzy" + help);
  EXPECT_EQ(said({"submit", "--config_name", "d"}),
            "unknown option --config_name; see tessera submit --help");
}

TEST(Commands, SetTheirVariables) {
  Tools tools;
  tools.app({"checkpoint", "prune", "--dry_run", "-t", "-0.5", "run", "--keep=3", "--states", "a",
             "b", "--operations", "reduce,gather", "--operations=reduce", "--tag", ""});
  EXPECT_EQ(tools.directory, "run");
  EXPECT_TRUE(tools.dry_run);
  EXPECT_EQ(tools.keep, 3);
  EXPECT_EQ(tools.tolerance, -0.5);
  EXPECT_THAT(tools.states, ElementsAre("a", "b"));
  EXPECT_THAT(tools.operations, ElementsAre("reduce", "gather", "reduce"));
  EXPECT_EQ(tools.tag, "");
}

Words rest_of(Words const& words) {
  Tools tools;
  tools.app(words);
  return tools.rest;
}

TEST(Commands, TakeOptionsOfTheTrainingWithoutDashes) {
  EXPECT_THAT(rest_of({"plan", "--model_type", "gpt2", "--ranks", "2", "--no_bf16", "-1"}),
              ElementsAre("--model_type", "gpt2", "--no_bf16", "-1"));
  EXPECT_THAT(rest_of({"plan", "--bf16=true", "--ranks=2", "run.json", "--", "--ranks", "3"}),
              ElementsAre("run.json", "--bf16=true", "--ranks", "3"));
}

TEST(Commands, TakeAProgramWithItsOptions) {
  EXPECT_THAT(rest_of({"launch", "--ranks", "2", "run.py", "--ranks", "3", "--", "x"}),
              ElementsAre("run.py", "--ranks", "3", "--", "x"));
  EXPECT_THAT(rest_of({"launch", "--", "--do_train"}), ElementsAre("--do_train"));
  EXPECT_THAT(rest_of({"submit", "a", "--", "--do_train"}), ElementsAre("a", "--do_train"));
}

std::string printed(Words const& words) {
  Tools tools;
  testing::internal::CaptureStdout();
  tools.app(words);
  return testing::internal::GetCapturedStdout();
}

TEST(Commands, PrintTheirHelp) {
  EXPECT_THAT(printed({"--help"}), HasSubstr("usage: tessera command ...\ntools\n"));
  EXPECT_THAT(printed({"--help"}), HasSubstr("\nCommands\n  checkpoint"));
  auto const help = printed({"checkpoint", "prune", "--help"});
  EXPECT_THAT(help, HasSubstr("usage: tessera checkpoint prune [options] directory\n"));
  EXPECT_THAT(help, HasSubstr("\nArguments\n  directory"));
  EXPECT_THAT(help, HasSubstr("\nOptions\n  --keep N"));
  EXPECT_THAT(help, HasSubstr("  -t, --tolerance X"));
  EXPECT_THAT(help, HasSubstr("checkpoint to use (default: latest)"));
}

TEST(Commands, ExplainOneOption) {
  EXPECT_THAT(printed({"checkpoint", "prune", "--help", "ranks"}),
              HasSubstr("--ranks\n  number of ranks\n  values: integer"));
  EXPECT_EQ(printed({"--help", "plan"}), printed({"plan", "--help"}));
  EXPECT_THAT(printed({"plan", "--help", "--max_steps"}), HasSubstr("max_steps (tessera-train)\n"));
}

}  // namespace
}  // namespace tessera::cli
