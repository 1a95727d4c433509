#include "validators.hpp"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

/// What a small program of the same kind says about @p words.
std::string said(std::vector<std::string> const& words) {
  CLI::App app("tools", "tessera");
  app.require_subcommand(1);
  std::string directory, dtype;
  int keep = 0, ranks = 0;
  double tolerance = 0;
  auto* group = app.add_subcommand("checkpoint", "");
  group->require_subcommand(1);
  auto* prune = group->add_subcommand("prune", "");
  prune->add_option("directory", directory, "Run directory")->required();
  prune->add_option("--keep", keep)->check(number_from(1));
  prune->add_option("--ranks", ranks);
  prune->add_option("-t,--tolerance", tolerance);
  prune->add_option("--dtype", dtype)->check(one_of({"fp32", "bf16"}));
  prune->add_flag("--dry-run");
  group->add_subcommand("verify", "");
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (CLI::ParseError const& error) {
    return usage_error(app, words, error);
  }
  return "accepted";
}

TEST(UsageErrors, NameTheNearestCommandAndTheHelpThatLists) {
  EXPECT_EQ(said({}), "tessera needs a command: checkpoint; see tessera --help");
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
            "argument directory is missing (Run directory)" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--keep"}), "--keep needs a value" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "-t"}), "--tolerance needs a value" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "y"}), "unexpected argument 'y'" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "y", "z"}), "unexpected arguments 'y' 'z'" + help);
}

TEST(UsageErrors, QuoteTheValue) {
  std::string const help = "; see tessera checkpoint prune --help";
  for (std::string const value : {"0", "-1", "many"})
    EXPECT_EQ(said({"checkpoint", "prune", "x", "--keep", value}),
              "--keep is '" + value + "'; it must be a number of at least 1" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--ranks", "two"}),
            "--ranks is 'two'; it must be an integer" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "-t", "low"}),
            "--tolerance is 'low'; it must be a number" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--dtype", "bf61"}),
            "--dtype is 'bf61'; it must be one of fp32, bf16; did you mean bf16?" + help);
  EXPECT_EQ(said({"checkpoint", "prune", "x", "--keep", "3"}), "accepted");
}

}  // namespace
}  // namespace tessera::cli
