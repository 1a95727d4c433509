#include "detail/accelerate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

ResolvedConfig resolved(Words const& words) { return resolve(parse_options(words), 4, 64); }
std::string usage_error(Words const& words) {
  return error_of<UsageError>([&] { resolved(words); });
}

TEST(Fsdp, StrategiesAreStages) {
  struct Case {
    char const* words;
    std::int64_t stage;
  };
  for (auto const& [words, stage] : std::vector<Case>{{"full_shard auto_wrap", 3},
                                                      {"shard_grad_op", 2},
                                                      {"no_shard", 0},
                                                      {"hybrid_shard", 3},
                                                      {"hybrid_shard_zero2 auto_wrap", 2},
                                                      {"true", 3},
                                                      {"FULL_SHARD", 3}}) {
    auto const c = resolved({"--fsdp", words});
    EXPECT_EQ(c.stage, stage) << words;
    EXPECT_EQ(c.origins.at("stage"), Origin::flag);
    EXPECT_THAT(c.notes, Contains(HasSubstr(concat("is ZeRO stage ", stage))));
  }
  for (char const* words : {"hybrid_shard", "hybrid_shard_zero2", "_hybrid_shard_zero2"}) {
    auto const c = resolved({"--fsdp", words});
    EXPECT_TRUE(c.shards_within_nodes) << words;
    EXPECT_THAT(c.notes, Contains(HasSubstr("within each node; gradients are summed")));
  }
  EXPECT_FALSE(resolved({"--fsdp", "full_shard"}).shards_within_nodes);
  EXPECT_EQ(resolved({}).stage, 0);
  EXPECT_EQ(resolved({"--fsdp", "false"}).stage, 0);
}

TEST(Fsdp, ConfigRefinesTheStageOrHasANote) {
  auto const c =
      resolved({"--fsdp", "true", "--fsdp_config",
                R"({"fsdp_reshard_after_forward": false, "backward_prefetch": "BACKWARD_PRE",
           "min_num_params": 2000, "fsdp_transformer_layer_cls_to_wrap": "GPT2Block"})"});
  EXPECT_EQ(c.stage, 2);
  for (char const* name : {"backward_prefetch", "min_num_params", "transformer_layer_cls_to_wrap"})
    EXPECT_THAT(c.notes, Contains(HasSubstr(concat("fsdp_config.", name, ": no effect"))));
  auto const a = parse_options(
      {"--fsdp", "full_shard", "--fsdp_config", R"({"activation_checkpointing": "true"})"});
  EXPECT_EQ(a.recompute, Recompute::block);
  EXPECT_EQ(
      resolved({"--fsdp", "full_shard", "--fsdp_config", R"({"sharding_strategy": 2})"}).stage, 2);
}

TEST(Fsdp, OffloadIsThatOfParameters) {
  auto const c = resolved({"--fsdp", "full_shard offload auto_wrap"});
  EXPECT_EQ(c.offload.parameters, OffloadDevice::cpu);
  EXPECT_THAT(c.notes_on_cpus, testing::ElementsAre(HasSubstr("computes on CPUs")));
  EXPECT_THAT(c.notes, testing::Not(Contains(HasSubstr("computes on CPUs"))));
  EXPECT_EQ(resolved({"--fsdp", "full_shard", "--fsdp_config", R"({"offload_params": true})"})
                .offload.parameters,
            OffloadDevice::cpu);
  EXPECT_EQ(resolved({"--fsdp", "full_shard"}).offload, Offload{});
}

/// What Accelerate writes of FSDP 2.
TEST(Fsdp, HybridShardWithoutReshardingIsItsSecondForm) {
  auto const stage_of = [](char const* strategy, char const* key) {
    auto const c = resolved(
        {"--fsdp", strategy, "--fsdp_config", concat(R"({"reshard_after_forward": )", key, "}")});
    EXPECT_EQ(c.shards_within_nodes, std::string_view(strategy).starts_with("hybrid"));
    return c.stage;
  };
  EXPECT_EQ(stage_of("hybrid_shard", "true"), 3);
  EXPECT_EQ(stage_of("hybrid_shard", "false"), 2);
  EXPECT_EQ(stage_of("full_shard", "false"), 2);
}

TEST(Fsdp, WhatIsRefusedSaysWhy) {
  EXPECT_THAT(usage_error({"--fsdp", "fullshard"}), HasSubstr("known are full_shard"));
  EXPECT_THAT(usage_error({"--fsdp", "full_shard no_shard"}), HasSubstr("leave one out"));
  EXPECT_THAT(usage_error({"--fsdp", "full_shard hybrid_shard"}), HasSubstr("leave one out"));
  EXPECT_THAT(usage_error({"--fsdp_config", R"({"min_num_params": 1})"}),
              HasSubstr("no effect without --fsdp"));
  EXPECT_THAT(usage_error({"--fsdp", "full_shard", "--deepspeed", "{\"zero_optimization\": {}}"}),
              HasSubstr("--fsdp and --deepspeed"));
  auto const key_error = [](char const* json) {
    return error_of<ConfigError>([&] {
      resolved({"--fsdp", "full_shard", "--fsdp_config", json});
    });
  };
  EXPECT_THAT(key_error(R"({"min_num_parms": 1})"), HasSubstr("did you mean min_num_params?"));
  EXPECT_THAT(key_error(R"({"reshard_after_forward": "half"})"),
              HasSubstr("reshard_after_forward is \"half\"; it must be FULL_SHARD"));
}

}  // namespace
}  // namespace tessera::config::detail
