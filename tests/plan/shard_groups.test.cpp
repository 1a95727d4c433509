#include "tessera/plan/shard_groups.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan_fixture.hpp"
#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PlanRequest slow_network(Cluster cluster) {
  auto out = test::request(test::small_gpt2({"--per_device_train_batch_size", "8"}), cluster);
  out.machine = test::round_machine();
  out.machine->intra_node = {1e-6, 1e11};
  out.machine->inter_node = {1e-3, 1e10};
  out.machine->memory_bandwidth = 1e13;  // an update that counts would favor large groups
  return out;
}
Choice const stage_3{.stage = 3, .micro_batch = 8};

TEST(ShardGroupSizes, AreNodesAndTheirDoubles) {
  EXPECT_THAT(shard_group_sizes({4, 8}), ElementsAre(8, 16));
  EXPECT_THAT(shard_group_sizes({1, 8}), ElementsAre(2, 4));
  EXPECT_THAT(shard_group_sizes({6, 4}), ElementsAre(4, 8)) << "16 does not divide 24";
  EXPECT_THAT(shard_group_sizes({4, 1}), ElementsAre(2));
  EXPECT_THAT(shard_group_sizes({1, 2}), IsEmpty());
  EXPECT_THAT(shard_group_sizes({1, 1}), IsEmpty());
}

/// Larger groups need less memory per rank: 16 bytes per parameter, divided by the ranks of a
/// group. Smaller ones gather over fewer links between nodes.
TEST(ShardGroups, TradeMemoryForCommunication) {
  Planner planner(slow_network({8, 4}));
  auto const groups = weigh_shard_groups(planner, stage_3);
  ASSERT_EQ(groups.size(), 4u);  // 4, 8, 16, all 32
  auto const p = static_cast<double>(planner.parameters());
  double ranks = 4;
  for (auto const& g : groups) {
    auto const& s = g.memory.states;
    EXPECT_NEAR(static_cast<double>(s.weights + s.gradients + s.master_weights + s.optimizer_state),
                16 * p / ranks, 0.02 * 16 * p / ranks)
        << ranks;
    ranks *= 2;
  }
  for (std::size_t i = 1; i < groups.size(); ++i)
    EXPECT_LT(groups[i].device_bytes, groups[i - 1].device_bytes);
  EXPECT_LT(groups[0].time->seconds, groups[3].time->seconds) << "the network is slow";
  for (auto const& g : groups)
    EXPECT_LE(best_shard_group(groups)->time->seconds, 1.011 * g.time->seconds);
  EXPECT_GT(best_shard_group(groups)->choice.shard_group, 0);
}

TEST(ShardGroups, TheFastestThatFitsIsRecommended) {
  auto request = slow_network({8, 4});
  Planner free(request);
  auto const groups = weigh_shard_groups(free, stage_3);
  request.limits.device = (groups[0].device_bytes + groups[1].device_bytes) / 2;
  Planner tight(request);
  auto const fitting = weigh_shard_groups(tight, stage_3);
  ASSERT_NE(best_shard_group(fitting), nullptr);
  EXPECT_EQ(best_shard_group(fitting)->choice.shard_group, 8);
  auto const text = shard_groups_text(tight, fitting);
  EXPECT_THAT(text, HasSubstr("too large"));
  EXPECT_THAT(text, HasSubstr("all 32 ranks"));
  EXPECT_EQ(shard_groups_json(tight, fitting).size(), 4u);
  request.limits.device = 1;
  Planner none(request);
  EXPECT_EQ(best_shard_group(weigh_shard_groups(none, stage_3)), nullptr);
}

/// A plan has the best group of each recomputation, and recommends it on a slow network.
TEST(ShardGroups, AreAChoiceOfAPlan) {
  Planner planner(slow_network({8, 4}));
  auto const choices = planner.compare();
  std::map<bool, int> rows;
  for (auto const& p : choices)
    if (p.choice.stage == 3 && !p.choice.offloads()) ++rows[p.choice.shard_group > 0];
  EXPECT_EQ(rows[true], 3) << "a recomputation each";
  EXPECT_EQ(rows[false], 3);
  auto const group = std::find_if(choices.begin(), choices.end(),
                                  [](auto const& p) { return p.choice.shard_group > 0; });
  auto const ranks = group->choice.shard_group;
  EXPECT_EQ(planner.resolved(group->choice).shard_group_size, ranks);
  EXPECT_THAT(text_of(group->choice), HasSubstr(concat("stage 3 in groups of ", ranks, " ranks")));
  EXPECT_GT(recommended(choices)->tokens_per_second, 0.0);
  auto other = group->choice;
  for (auto const size : shard_group_sizes({8, 4})) {
    other.shard_group = size;
    EXPECT_LE(group->time->seconds, 1.011 * planner.evaluate(other).time->seconds) << size;
  }
}

/// Groups that the configuration names are the only ones.
TEST(ShardGroups, AsGivenStay) {
  auto request = slow_network({8, 4});
  request.arguments = config::parse_options(test::small_gpt2(
      {"--deepspeed", R"({"zero_optimization": {"stage": 3, "mics_shard_size": 8}})"}));
  Planner planner(request);
  for (auto const& choice : planner.open()) {
    EXPECT_EQ(choice.shard_group, 0);
    EXPECT_EQ(planner.resolved(choice).shard_group_size, 8);
  }
}

TEST(ShardGroups, SmallerGroupsAreFasterByTheGuides) {
  EXPECT_TRUE(
      is_faster_by_the_guides({.stage = 3, .shard_group = 8}, {.stage = 3, .shard_group = 16}));
  EXPECT_TRUE(is_faster_by_the_guides({.stage = 3, .shard_group = 16}, {.stage = 3}));
  EXPECT_TRUE(is_faster_by_the_guides({.stage = 2}, {.stage = 3, .shard_group = 8}));
}

}  // namespace
}  // namespace tessera::plan
