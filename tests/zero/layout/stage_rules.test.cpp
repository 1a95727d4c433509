#include "layout/stage_rules.hpp"

#include <array>

#include "detail_fixture.hpp"
#include "engine_settings.hpp"
#include "tessera/core/error.hpp"

namespace tessera::zero::detail {
namespace {

EngineConfig config_of(int stage, Dtype dtype) {
  EngineConfig c;
  c.partition = partition_of(stage);
  c.dtype = c.communication_dtype = dtype;
  return c;
}

TEST(StageRules, ShardOneMoreKindOfStatePerStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    auto const rules = rules_for(config_of(stage, Dtype::bf16), 4);
    EXPECT_TRUE(rules.reduces);
    EXPECT_TRUE(rules.separate_master);
    EXPECT_EQ(rules.shards_optimizer, stage >= 1);
    EXPECT_EQ(rules.shards_gradients, stage >= 2);
    EXPECT_EQ(rules.shards_weights, stage >= 3);
  }
}

TEST(StageRules, OneRankShardsNothing) {
  auto const rules = rules_for(config_of(3, Dtype::fp32), 1);
  EXPECT_FALSE(rules.reduces || rules.shards_optimizer || rules.shards_gradients ||
               rules.shards_weights || rules.separate_master);
}

TEST(StageRules, DevicesCopyCompleteWeightsForNarrowerProducts) {
  using enum memory::MemorySpace;
  for (int stage = 0; stage <= 3; ++stage) {
    auto c = config_of(stage, Dtype::fp32);
    EXPECT_FALSE(rules_for(c, 2, device).copies_weights) << "products in fp32";
    c.product_dtype = Dtype::bf16;
    EXPECT_EQ(rules_for(c, 2, device).copies_weights, stage < 3);
    EXPECT_TRUE(rules_for(c, 1, device).copies_weights);
    EXPECT_FALSE(rules_for(c, 2, host).copies_weights);
    c.dtype = Dtype::bf16;
    EXPECT_FALSE(rules_for(c, 2, device).copies_weights);
  }
}

TEST(StageRules, KeepGradientsInTheDtypeThatLosesNothing) {
  auto c = config_of(2, Dtype::bf16);
  EXPECT_EQ(rules_for(c, 2).gradient_dtype, Dtype::bf16);
  c.communication_dtype = Dtype::fp32;
  EXPECT_EQ(rules_for(c, 2).gradient_dtype, Dtype::fp32) << "the shard is written by fp32 sums";
  c.partition = partition_of(1);
  EXPECT_EQ(rules_for(c, 2).gradient_dtype, Dtype::bf16);
  c.accumulation_steps = 2;
  EXPECT_EQ(rules_for(c, 2).gradient_dtype, Dtype::fp32);
}

TEST(StageRules, ReduceOnceKeepsCompleteGradientsWhereThereAreMicroSteps) {
  for (int stage = 0; stage <= 3; ++stage) {
    auto c = config_of(stage, Dtype::bf16);
    test::set_reduce_once(c);
    EXPECT_EQ(rules_for(c, 4).shards_gradients, stage >= 2) << "one micro-step";
    c.accumulation_steps = 2;
    auto const rules = rules_for(c, 4);
    EXPECT_FALSE(rules.shards_gradients);
    EXPECT_EQ(rules.gradient_dtype, Dtype::fp32) << "sums over micro-steps";
    EXPECT_EQ(rules.shards_weights, stage == 3);
  }
  auto c = config_of(3, Dtype::bf16);
  test::weights_of(c).reduce_once = true;
  EXPECT_NO_THROW(validate(c));
  test::weights_of(c).quantized_gradients.emplace();
  EXPECT_THROW(validate(c), InternalError);
}

TEST(StageRules, Fp16GradientsAreDividedWhereDeepSpeedDividesThem) {
  auto const averaging = [](EngineConfig const& c) {
    auto const a = rules_for(c, 4).averaging;
    return std::array{a.carried, a.before, a.left};
  };
  using Factors = std::array<double, 3>;
  EXPECT_EQ(averaging(config_of(2, Dtype::bf16)), (Factors{1, 1, 1}));
  auto c = config_of(2, Dtype::fp16);
  EXPECT_EQ(averaging(c), (Factors{4, 0.25, 1}));
  c.partition = partition_of(0);
  EXPECT_EQ(averaging(c), (Factors{4, 1, 4}));
  c.reduction.predivide_factor = 2;
  EXPECT_EQ(averaging(c), (Factors{4, 0.5, 2}));
  c.communication_dtype = Dtype::fp32;
  EXPECT_EQ(averaging(c), (Factors{4, 0.5, 1})) << "divided on the wire";
  EXPECT_EQ(rules_for(c, 4).averaging.after, 0.5);
  c.dtype = Dtype::fp32;
  EXPECT_EQ(averaging(c), (Factors{4, 0.5, 2})) << "configured";
  c.partition = partition_of(1);
  EXPECT_EQ(averaging(c), (Factors{4, 0.25, 1})) << "DeepSpeed's stage 1 divides before";
  c.reduction = {.average = GradientAverage::sum};
  EXPECT_EQ(averaging(c), (Factors{1, 1, 0.25}));
  EXPECT_EQ(rules_for(config_of(0, Dtype::fp16), 1).averaging.carried, 1.0);
}

/// DeepSpeed's MiCS divides within a group and across the copies.
TEST(StageRules, Fp16GradientsOfShardGroupsAreDividedTwice) {
  auto const averaging = [](EngineConfig const& c) {
    auto const a = rules_for(c, 2, memory::MemorySpace::host, 4).averaging;
    return std::array{a.carried, a.before, a.across, a.left};
  };
  using Factors = std::array<double, 4>;
  EXPECT_EQ(averaging(config_of(3, Dtype::fp16)), (Factors{8, 0.5, 0.25, 1}));
  EXPECT_EQ(averaging(config_of(3, Dtype::bf16)), (Factors{1, 1, 1, 1}));
  auto c = config_of(1, Dtype::fp16);
  c.reduction = {.average = GradientAverage::sum};
  EXPECT_EQ(averaging(c), (Factors{8, 1, 1, 1}));
}

TEST(StageRules, AReduceScatterDividesBeforeItInAnyCase) {
  auto c = config_of(3, Dtype::fp16);
  auto const usual = rules_for(c, 4).averaging;
  c.reduction = {.division = GradientDivision::before_reduction, .predivide_factor = 2};
  auto const configured = rules_for(c, 4).averaging;
  EXPECT_EQ(configured.before, usual.before);
  EXPECT_EQ(configured.left, usual.left);
  EXPECT_NO_THROW(validate(c));
  c.reduction.predivide_factor = 0;
  EXPECT_THROW(validate(c), InternalError);
}

TEST(StageRules, ASettingOfAHigherStageIsTheDefault) {
  ShardedWeights all;
  all.shard_group_size = 2;
  all.reduce_once = true;
  all.secondary_group_size = 4;
  EngineConfig c;
  for (int stage = 0; stage <= 3; ++stage) {
    c.partition = partition_of(stage, all);
    EXPECT_EQ(stage_of(c.partition), stage);
    EXPECT_EQ(settings<ShardedStates>(c).shard_group_size, stage >= 1 ? 2 : 0);
    EXPECT_EQ(settings<ShardedGradients>(c).reduce_once, stage >= 2);
    EXPECT_EQ(settings<ShardedWeights>(c).secondary_group_size, stage == 3 ? 4 : 1);
    EXPECT_EQ(edit<ShardedGradients>(c) != nullptr, stage >= 2);
  }
  EXPECT_THROW((void)partition_of(4), InternalError);
}

EngineConfig trained_by(char const* optimizer, Dtype dtype = Dtype::bf16) {
  auto c = config_of(1, dtype);
  c.optimizer = optim::make_spec(optimizer);
  return c;
}

std::string refusal(EngineConfig const& config,
                    memory::MemorySpace space = memory::MemorySpace::device) {
  try {
    validate_training(config, 1, space);
  } catch (InternalError const& error) {
    return error.what();
  }
  return {};
}

TEST(ValidateTraining, RefusesPartsOfAnUpdateThatNeedsCompleteParameters) {
  for (auto const* name : {"Lamb", "Muon"}) {
    auto config = trained_by(name);
    test::states_of(config).optimizer_offload.emplace();
    EXPECT_EQ(refusal(config), "");
    test::states_of(config).optimizer_offload->ratio = 0.5;
    EXPECT_NE(refusal(config).find("whose update needs complete parameters"), std::string::npos)
        << name;
    test::states_of(config).optimizer_offload->ratio = 1.0;
    test::states_of(config).optimizer_offload->delay_from = 1;
    EXPECT_NE(refusal(config).find("whose update needs complete parameters"), std::string::npos)
        << name;
    EXPECT_EQ(refusal(config, memory::MemorySpace::host), "") << "nothing is offloaded";
  }
}

TEST(ValidateTraining, RefusesWhatADriveDoesNotHold) {
  auto config = trained_by("AdamW");
  test::states_of(config).optimizer_swap.emplace();
  EXPECT_EQ(refusal(config), "");
  auto changed = config;
  changed.optimizer.set_state_dtype(Dtype::bf16);
  EXPECT_NE(refusal(changed).find("its states of 16 bits"), std::string::npos);
  changed = config;
  test::states_of(changed).master_dtype = Dtype::bf16;
  EXPECT_NE(refusal(changed).find("bf16 master weights"), std::string::npos);
  EXPECT_EQ(refusal(changed, memory::MemorySpace::host), "") << "the working weights stay";
  auto quantized = trained_by("AdamW8bit", Dtype::fp32);
  test::states_of(quantized).optimizer_swap.emplace();
  EXPECT_NE(refusal(quantized, memory::MemorySpace::host).find("no state goes to a drive"),
            std::string::npos);
}

TEST(Ownership, IsTheShardOrTheCompleteUnit) {
  PartitionPlan const plan(test::two_units(), 2);
  Ownership const shard{&plan, Rank(1), false}, replica{&plan, Rank(1), true};
  EXPECT_EQ(shard.begin(UnitIndex(0)), UnitOffset(64));
  EXPECT_EQ(shard.numel(UnitIndex(0)), 64);
  EXPECT_EQ(shard.state_offset(UnitIndex(1)), 64);
  EXPECT_EQ(shard.shard_offset(UnitIndex(0)), 0);
  EXPECT_EQ(replica.begin(UnitIndex(0)), UnitOffset(0));
  EXPECT_EQ(replica.numel(UnitIndex(0)), 128);
  EXPECT_EQ(replica.state_offset(UnitIndex(1)), 128);
  EXPECT_EQ(replica.shard_offset(UnitIndex(0)), 64);
}

}  // namespace
}  // namespace tessera::zero::detail
