#include "tessera/train/resume_changes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ConfigTree json(char const* text) { return ConfigTree::parse(text, "test"); }

RunDescription run() {
  return {json(R"({"train_file": "a.txt", "train_file_xxh3": "11", "train_file_part": "all",
                   "tokenizer": "gpt2", "tokenizer_xxh3": "22", "block_size": 32,
                   "keep_linebreaks": true, "seed": 7, "order": "randperm", "samples": 100,
                   "validation_file": "v.txt", "validation_file_xxh3": "33"})"),
          40, json(R"({"engine": {"learning_rate": {"value": 0.01, "origin": "flag"},
                              "stage": {"value": 2, "origin": "flag"},
                              "world_size": {"value": 2, "origin": "default"},
                              "scheduler": {"value": null, "origin": "default"}},
                   "arguments": {"seed": {"value": 7, "origin": "flag"},
                                 "learning_rate": {"value": 0.01, "origin": "flag"},
                                 "save_steps": {"value": 500.0, "origin": "default"},
                                 "output_dir": {"value": "out", "origin": "flag"}}})"),
          json(R"({"n_embd": 32, "resid_pdrop": 0.0, "transformers_version": "4"})")};
}

TEST(ResumeChanges, NothingChanged) {
  auto const changes = compare(run(), run());
  EXPECT_THAT(changes.data, IsEmpty());
  EXPECT_THAT(changes.training, IsEmpty());
  EXPECT_THAT(changes.other, IsEmpty());
}

TEST(ResumeChanges, AnotherPlaceOfTheSameTextIsNoChange) {
  auto now = run();
  now.data.set("train_file", "elsewhere/b.txt").set("tokenizer", "copy");
  EXPECT_THAT(compare(run(), now).data, IsEmpty());
}

TEST(ResumeChanges, WhatDeterminesTheSamples) {
  auto now = run();
  now.data.set("train_file", "b.txt").set("train_file_xxh3", "12");
  now.data.set("train_file_part", "all but the first 5 %").set("block_size", 64);
  now.data.set("keep_linebreaks", false).set("tokenizer_xxh3", "23").set("samples", 50);
  now.data.set("order", "philox").set("seed", 8);
  EXPECT_THAT(compare(run(), now).data,
              ElementsAre("train_file was a.txt, is b.txt",
                          "the part of train_file was all, is all but the first 5 %",
                          "block_size was 32, is 64", "keep_linebreaks was true, is false",
                          "the content of tokenizer gpt2 has changed (XXH3 was 22, is 23)",
                          "train_sampling_strategy was random, is philox", "data_seed was 7, is 8"))
      << "the number of sequences follows from the text";
}

TEST(ResumeChanges, OtherWeightsOfAMixture) {
  auto saved = run(), now = run();
  now.data.set("data_mixture", "1,1").set("skip_broken_records", true);
  EXPECT_THAT(compare(saved, now).data, IsEmpty()) << "older checkpoints do not have them";
  saved.data.set("data_mixture", "3,1").set("skip_broken_records", false);
  EXPECT_THAT(compare(saved, now).data, ElementsAre("data_mixture was 3,1, is 1,1",
                                                    "skip_broken_records was false, is true"));
}

TEST(ResumeChanges, NumberOrderAndSeed) {
  auto saved = run(), now = run();
  now.data.set("samples", 50);
  EXPECT_THAT(compare(saved, now).data, ElementsAre("the number of sequences was 100, is 50"));
  saved.data.set("order", "sequential");
  now = saved;
  now.data.set("seed", 8);
  EXPECT_THAT(compare(saved, now).data, IsEmpty()) << "the file's order has no seed";
  saved.data.set("order", "random");
  now.data.set("order", "philox").set("seed", 7);
  EXPECT_THAT(compare(saved, now).data, IsEmpty()) << "the name in older checkpoints";
}

TEST(ResumeChanges, WhatStepsComputeAndWhatDoesNotMatterToThem) {
  auto now = run();
  now.resolved_config = json(
      R"({"engine": {"learning_rate": {"value": 0.001, "origin": "deepspeed"},
                     "stage": {"value": 3, "origin": "deepspeed"},
                     "world_size": {"value": 4, "origin": "default"},
                     "scheduler": {"value": {"type": "WarmupLR"}, "origin": "deepspeed"},
                     "new_in_this_version": {"value": 1, "origin": "default"}},
          "arguments": {"seed": {"value": 8, "origin": "flag"},
                        "learning_rate": {"value": 0.001, "origin": "flag"},
                        "save_steps": {"value": 50, "origin": "flag"},
                        "output_dir": {"value": "other", "origin": "flag"}}})");
  now.total_steps = 60;
  now.model_config = json(R"({"n_embd": 32, "resid_pdrop": 0.1, "transformers_version": "5"})");
  now.data.set("validation_file", "w.txt").set("validation_file_xxh3", "34");
  auto const changes = compare(run(), now);
  EXPECT_THAT(changes.data, IsEmpty());
  EXPECT_THAT(changes.training,
              ElementsAre("learning_rate was 0.01, is 0.001",
                          R"(scheduler was none, is {"type":"WarmupLR"})",
                          "total_steps was 40, is 60", "resid_pdrop was 0.0, is 0.1",
                          "validation_file was v.txt, is w.txt", "seed was 7, is 8"));
  EXPECT_THAT(changes.other, ElementsAre("stage was 2, is 3", "world_size was 2, is 4",
                                         "save_steps was 500.0, is 50"));
}

TEST(ResumeChanges, WhatACheckpointDoesNotSayIsNotCompared) {
  auto const changes = compare({}, run());
  EXPECT_THAT(changes.data, IsEmpty());
  EXPECT_THAT(changes.training, IsEmpty());
  EXPECT_THAT(changes.other, IsEmpty());
}

}  // namespace
}  // namespace tessera::train
