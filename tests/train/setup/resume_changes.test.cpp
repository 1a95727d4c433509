#include "tessera/train/setup/resume_changes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAreArray;

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

/// All members of a described configuration with another value, as "name was x, is y".
ConfigTree with_values(ConfigTree const& described, char const* value) {
  ConfigTree out = ConfigTree::object();
  for (auto const& [name, entry] : described.as_object())
    out.set(name, ConfigTree::object().set("value", value));
  return out;
}
std::vector<std::string> changed(std::initializer_list<char const*> names) {
  std::vector<std::string> out;
  for (auto const* name : names) out.push_back(concat(name, " was x, is y"));
  return out;
}
ResumeChanges changes_of_all(char const* block, ConfigTree const& described) {
  RunDescription saved, now;
  saved.resolved_config = ConfigTree::object().set(block, with_values(described, "x"));
  now.resolved_config = ConfigTree::object().set(block, with_values(described, "y"));
  return compare(saved, now);
}

TEST(ResumeChanges, EveryOptionIsKnown) {
  auto const changes = changes_of_all("arguments", config::describe(config::TrainingArguments()));
  EXPECT_THAT(changes.other, UnorderedElementsAreArray(changed({"preprocessing_num_workers",
                                                                "dataloader_num_workers",
                                                                "dataloader_prefetch_factor",
                                                                "per_device_eval_batch_size",
                                                                "auto_find_batch_size",
                                                                "gradient_checkpointing",
                                                                "recompute",
                                                                "eval_on_start",
                                                                "eval_strategy",
                                                                "eval_steps",
                                                                "eval_delay",
                                                                "load_best_model_at_end",
                                                                "metric_for_best_model",
                                                                "greater_is_better",
                                                                "early_stopping_patience",
                                                                "early_stopping_threshold",
                                                                "save_strategy",
                                                                "save_steps",
                                                                "save_total_limit",
                                                                "save_only_model",
                                                                "memory_save_steps",
                                                                "async_save",
                                                                "checkpoint_ranks_per_file",
                                                                "max_save_failures",
                                                                "max_skipped_steps",
                                                                "use_cpu",
                                                                "device_memory",
                                                                "host_memory",
                                                                "deterministic",
                                                                "device_attention",
                                                                "device_gelu",
                                                                "device_product_algorithms",
                                                                "device_graphs",
                                                                "communication_multiprocessors",
                                                                "nccl_cta_policy",
                                                                "threads",
                                                                "collectives",
                                                                "auto_tune",
                                                                "tune_minutes",
                                                                "comm_timeout",
                                                                "node_timeout",
                                                                "verify_steps",
                                                                "on_corruption",
                                                                "logging_strategy",
                                                                "logging_steps",
                                                                "logging_dir",
                                                                "logging_nan_inf_filter",
                                                                "include_num_input_tokens_seen",
                                                                "log_on_each_node",
                                                                "log_level",
                                                                "log_level_replica",
                                                                "log_dir",
                                                                "run_name"})))
      << "an option that is new here changes the steps, is covered by another value, or belongs "
         "into this list";
}

TEST(ResumeChanges, WhatChangesTheStepsIsNotCalledTheSame) {
  auto const arguments = changes_of_all("arguments", config::describe(config::TrainingArguments()));
  EXPECT_THAT(arguments.training, UnorderedElementsAreArray(changed({"seed",
                                                                     "tf32",
                                                                     "eod_mask_loss",
                                                                     "reset_attention_mask",
                                                                     "reset_position_ids",
                                                                     "use_peft_lora",
                                                                     "lora_r",
                                                                     "lora_alpha",
                                                                     "lora_dropout",
                                                                     "lora_target_modules",
                                                                     "use_rslora",
                                                                     "use_dora",
                                                                     "init_lora_weights",
                                                                     "lora_modules_to_save",
                                                                     "frozen_parameters",
                                                                     "max_eval_samples",
                                                                     "delayed_update_from_step",
                                                                     "task",
                                                                     "max_length",
                                                                     "dataset_text_field",
                                                                     "record_template",
                                                                     "chat_template_path",
                                                                     "eos_token",
                                                                     "completion_only_loss",
                                                                     "assistant_only_loss",
                                                                     "packing",
                                                                     "packing_strategy",
                                                                     "eval_packing",
                                                                     "padding_free",
                                                                     "pad_to_multiple_of",
                                                                     "beta",
                                                                     "label_smoothing",
                                                                     "ref_model_name_or_path",
                                                                     "precompute_ref_log_probs"})));
  auto const engine = changes_of_all("engine", config::describe(config::ResolvedConfig()));
  auto const place = changed({"offload_optimizer", "offload_param", "cpu_checkpointing",
                              "reduce_scatter", "stage", "reduce_once"});
  EXPECT_THAT(engine.other, IsSupersetOf(place));
  EXPECT_THAT(engine.training,
              IsSupersetOf(changed({"fp8", "dtype", "optimizer", "beta1", "quantized_gradients",
                                    "reproducible", "label_smoothing_factor"})));
}

TEST(ResumeChanges, AttentionOfAGpuHasOtherMasksOnlyWithDropout) {
  for (char const* dropout : {R"({"attn_pdrop": 0.1})", R"({"attention_dropout": 0.1})"})
    for (bool const drops : {true, false}) {
      auto saved = run();
      saved.model_config = json(drops ? dropout : R"({"attn_pdrop": 0.0, "resid_pdrop": 0.1})");
      auto now = saved;
      saved.resolved_config = json(R"({"arguments": {"device_attention": {"value": "cudnn"}}})");
      now.resolved_config = json(R"({"arguments": {"device_attention": {"value": "portable"}}})");
      auto const changes = compare(saved, now);
      auto const text = ElementsAre("device_attention was cudnn, is portable");
      EXPECT_THAT(drops ? changes.training : changes.other, text);
      EXPECT_THAT(drops ? changes.other : changes.training, IsEmpty());
    }
}

TEST(ResumeChanges, WhatACheckpointDoesNotSayIsNotCompared) {
  auto const changes = compare({}, run());
  EXPECT_THAT(changes.data, IsEmpty());
  EXPECT_THAT(changes.training, IsEmpty());
  EXPECT_THAT(changes.other, IsEmpty());
}

}  // namespace
}  // namespace tessera::train
