#include "commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_output.hpp"
#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/error.hpp"
#include "tessera/plan/machine_profile.hpp"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Eight devices per node, of 100 TFLOP/s.
std::string machine(ScratchFiles const& files) {
  plan::MachineProfile m;
  m.name = "round";
  m.has_device = true;
  m.ranks_per_node = 8;
  m.peak = {{Dtype::fp32, 1e14}, {Dtype::fp16, 1e14}, {Dtype::bf16, 1e14}};
  m.memory_bandwidth = m.host_memory_bandwidth = 1e12;
  m.host_link = m.intra_node = m.inter_node = {1e-6, 1e11};
  m.save_bandwidth = 1e9;
  m.node_failure_hours = 1000;
  return files.write("round.json", plan::to_json(m).dump());
}

std::string simulate(ScratchFiles const& files, std::vector<std::string> words) {
  words.insert(words.begin(), {"simulate", "--machine", machine(files)});
  for (auto const* word :
       {"--", "--model_type", "gpt2", "--config_overrides",
        "n_embd=256,n_layer=4,n_head=4,vocab_size=4096", "--bf16", "--block_size", "128"})
    words.emplace_back(word);
  return test::output_of(add_simulate, std::move(words));
}

TEST(SimulateCommand, NodeCountsAreAListOrDouble) {
  EXPECT_THAT(parse_node_counts("1,3,12500"), ElementsAre(1, 3, 12500));
  EXPECT_THAT(parse_node_counts("2:9"), ElementsAre(2, 4, 8));
  auto const error = [](char const* text) {
    return error_of<UsageError>([&] { (void)parse_node_counts(text); });
  };
  EXPECT_THAT(error("0"), HasSubstr("'0' is not a number of nodes"));
  EXPECT_THAT(error("4,2"), HasSubstr("must ascend"));
  EXPECT_THAT(error("8:4"), HasSubstr("empty range"));
  EXPECT_THAT(error(""), HasSubstr("--nodes is empty"));
  EXPECT_THAT(error("many"), HasSubstr("--nodes: 'many' is not a number of nodes"));
}

TEST(SimulateCommand, SaysWhatDoesNotFit) {
  ScratchFiles const files;
  auto profile = ConfigTree::read(machine(files));
  profile.set("device_memory", "20MiB");
  auto const small = files.write("small.json", profile.dump());
  auto const said = test::output_of(
      add_simulate, {"simulate", "--machine", small, "--nodes", "1:2", "--", "--model_type", "gpt2",
                     "--config_overrides", "n_embd=256,n_layer=4,n_head=4,vocab_size=4096",
                     "--bf16", "--block_size", "128"});
  EXPECT_THAT(said, HasSubstr("Does not fit on 1, 2 nodes: it needs "));
  EXPECT_THAT(said, HasSubstr("of device memory per rank on 1; tessera plan"));
  EXPECT_THAT(simulate(files, {"--nodes", "1:2"}), Not(HasSubstr("Does not fit")));
}

TEST(SimulateCommand, StragglersAreRanksOfTheRun) {
  ScratchFiles const files;
  EXPECT_THAT(error_of<UsageError>([&] {
                (void)simulate(files, {"--nodes", "1:2", "--slow_ranks", "9", "--slow_by", "1.2"});
              }),
              HasSubstr("--slow_ranks is 9, more than the 8 ranks of 1 node"));
}

TEST(SimulateCommand, PrintsScalingAndDuration) {
  ScratchFiles const files;
  auto const text = simulate(files, {"--nodes", "1:4", "--train_tokens", "1e9"});
  EXPECT_THAT(text, HasSubstr("round, which is not measured"));
  EXPECT_THAT(text, HasSubstr("efficiency"));
  EXPECT_THAT(text, HasSubstr("1e+09 tokens on 32 ranks"));
  EXPECT_THAT(text, HasSubstr("with a save every"));
}

TEST(SimulateCommand, NamesWhatIsWrong) {
  ScratchFiles const files;
  EXPECT_THAT(error_of<UsageError>([&] {
                (void)simulate(files, {"--slow_ranks", "2"});
              }),
              HasSubstr("needs --slow_by"));
  EXPECT_THAT(error_of<UsageError>([&] {
                (void)simulate(files, {"--nodes", "two"});
              }),
              HasSubstr("'two' is not a number of nodes"));
}

}  // namespace
}  // namespace tessera::cli
