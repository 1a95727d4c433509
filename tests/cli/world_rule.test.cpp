#include "recovery/world_rule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "scratch_files.hpp"

namespace tessera::cli {
namespace {

TEST(WorldRule, KeepsTheGlobalBatch) {
  WorldRule const rule(
      {"--do_train", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "3",
       "--model_type", "gpt2", "--tokenizer_name", "t", "--train_file", "x"},
      4, 1);
  EXPECT_EQ(rule.global_batch(), 24);
  EXPECT_EQ(rule.words_for(4)->size(), 11U);
  EXPECT_THAT(*rule.words_for(2), testing::Contains("6"));
  EXPECT_THAT(*rule.words_for(3), testing::Contains("4"));
  EXPECT_TRUE(rule.words_for(1));
  EXPECT_FALSE(rule.words_for(5));
}

TEST(WorldRule, TheSameBitsNeedPowersOfTwoAndShardGroupsTheirRanks) {
  std::vector<std::string> words{"--do_train", "--per_device_train_batch_size",
                                 "1",          "--gradient_accumulation_steps",
                                 "8",          "--model_type",
                                 "gpt2",       "--tokenizer_name",
                                 "t",          "--train_file",
                                 "x"};
  ScratchFiles const scratch;
  auto groups = words;
  groups.insert(groups.end(), {"--deepspeed", scratch.write("ds.json", R"({"zero_optimization":
      {"stage": 3, "mics_shard_size": 2}})")});
  words.insert(words.end(), {"--reproducible", "world"});
  WorldRule const rule(words, 8, 2);
  for (int const ranks : {1, 2, 4}) EXPECT_TRUE(rule.words_for(ranks)) << ranks;
  for (int const ranks : {3, 5, 6, 7}) EXPECT_FALSE(rule.words_for(ranks)) << ranks;
  WorldRule const grouped(groups, 8, 2);
  EXPECT_TRUE(grouped.words_for(4));
  EXPECT_FALSE(grouped.words_for(1));
}

TEST(WorldRule, ABatchOfTheJsonDerivesTheAccumulation) {
  ScratchFiles const scratch;
  std::ofstream(scratch.path() / "ds.json") << R"({"train_batch_size": 8})";
  std::string const file = (scratch.path() / "ds.json").string();
  WorldRule const rule(
      {"--do_train", "--model_type", "gpt2", "--tokenizer_name", "t", "--train_file", "x",
       "--per_device_train_batch_size", "2", "--deepspeed", file},
      4, 1);
  EXPECT_EQ(rule.words_for(2)->size(), 11U);  // nothing needs to be added
  std::ofstream(scratch.path() / "ds.json") << R"({"gradient_accumulation_steps": 1})";
  WorldRule const fixed(
      {"--do_train", "--model_type", "gpt2", "--tokenizer_name", "t", "--train_file", "x",
       "--per_device_train_batch_size", "2", "--deepspeed", file},
      4, 1);
  EXPECT_FALSE(fixed.words_for(2));
}

}  // namespace
}  // namespace tessera::cli
