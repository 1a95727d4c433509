#include "tessera/config/node_groups.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

ResolvedConfig placed(Words const& words, int ranks, int ranks_per_node) {
  auto out = resolve(parse_options(words), ranks, 64);
  place_on_nodes(out, ranks_per_node);
  return out;
}
Words mics(int size, std::string const& more = "") {
  return {"--deepspeed",
          concat(R"({"zero_optimization": {"stage": 3, "mics_shard_size": )", size, more, "}}")};
}
std::string refusal(Words const& words, int ranks, int ranks_per_node) {
  return error_of<ConfigError>([&] { placed(words, ranks, ranks_per_node); });
}

TEST(NodeGroups, OfHybridShardAreTheRanksOfANode) {
  auto const c = placed({"--fsdp", "hybrid_shard"}, 8, 4);
  EXPECT_EQ(c.stage, 3);
  EXPECT_EQ(c.shard_group_size, 4);
  EXPECT_EQ(placed({"--fsdp", "hybrid_shard_zero2"}, 8, 2).shard_group_size, 2);
  EXPECT_EQ(placed({"--fsdp", "full_shard"}, 8, 4).shard_group_size, 0);
  EXPECT_THAT(refusal({"--fsdp", "hybrid_shard"}, 3, 0), HasSubstr("the same number"));
}

TEST(NodeGroups, OfOneRankShareNothing) {
  auto const c = placed({"--fsdp", "hybrid_shard"}, 4, 1);
  EXPECT_EQ(c.stage, 0);
  EXPECT_EQ(c.shard_group_size, 0);
  EXPECT_THAT(c.notes, Contains(HasSubstr("is no_shard")));
  EXPECT_EQ(placed({"--fsdp", "hybrid_shard"}, 1, 1).stage, 3);
}

TEST(NodeGroups, OfMiCSDivideTheRanks) {
  EXPECT_EQ(placed(mics(2), 4, 4).shard_group_size, 2);
  EXPECT_EQ(placed(mics(4), 4, 0).shard_group_size, 4) << "nodes do not matter";
  EXPECT_THAT(refusal(mics(3), 4, 4), HasSubstr("mics_shard_size is 3 on 4 ranks; it must divide"));
  EXPECT_THAT(refusal(mics(8), 4, 4), HasSubstr("is 8 on 4 ranks"));
  EXPECT_THAT(refusal(mics(1), 4, 4), HasSubstr("partitions nothing"));
}

TEST(NodeGroups, AreTheMeshOfTheRun) {
  using topology::Axis, topology::Mesh;
  EXPECT_EQ(mesh_of(placed(mics(2), 8, 4)), Mesh({{Axis::replicate, 4}, {Axis::shard, 2}}));
  EXPECT_EQ(mesh_of(placed({"--fsdp", "hybrid_shard"}, 8, 4)),
            Mesh({{Axis::replicate, 2}, {Axis::shard, 4}}));
  EXPECT_EQ(mesh_of(placed({}, 8, 4)), Mesh({{Axis::shard, 8}}));
}

TEST(NodeGroups, OfSecondaryShardsDivideTheRanks) {
  auto const hpz = [](int size) {
    return Words{
        "--deepspeed",
        concat(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": )", size, "}}")};
  };
  auto const c = placed(hpz(4), 8, 4);
  EXPECT_EQ(c.secondary_group_size, 4);
  EXPECT_THAT(c.notes, Not(Contains(HasSubstr("leave the node"))));
  EXPECT_THAT(placed(hpz(4), 8, 2).notes, Contains(HasSubstr("leave the node")));
  EXPECT_THAT(refusal(hpz(3), 8, 4), HasSubstr("zero_hpz_partition_size is 3 on 8 ranks"));
  EXPECT_THAT(refusal(hpz(16), 8, 4), HasSubstr("must divide"));
}

TEST(NodeGroups, SumQuantizedGradientsBeforeTheyLeaveTheNode) {
  Words const words{"--deepspeed",
                    R"({"zero_optimization": {"stage": 3, "zero_quantized_gradients": true}})"};
  EXPECT_EQ(placed(words, 8, 4).gradient_node_size, 4);
  EXPECT_EQ(placed(words, 8, 1).gradient_node_size, 1);
  auto const one = placed(words, 8, 8), uneven = placed(words, 3, 0);
  EXPECT_EQ(one.gradient_node_size, 0);
  EXPECT_THAT(one.notes, Contains(HasSubstr("no effect on one node")));
  EXPECT_EQ(uneven.gradient_node_size, 1);
  EXPECT_THAT(uneven.notes, Contains(HasSubstr("one all-to-all over all ranks")));
  EXPECT_EQ(placed(words, 1, 1).gradient_node_size, 0);
  EXPECT_EQ(placed({}, 8, 4).gradient_node_size, 0);
}

TEST(NodeGroups, GatherInTwoLevelsOnlyAcrossNodes) {
  auto const two = R"(, "mics_hierarchical_params_gather": true)";
  EXPECT_TRUE(placed(mics(4, two), 8, 2).hierarchical_gather);
  EXPECT_THAT(refusal(mics(2, two), 8, 2), HasSubstr("within nodes of 2"));
}

TEST(NodeGroups, AHierarchicalGatherChoosesTheCollectives) {
  auto const wanted = [](Words words) { return wants_two_levels(parse_options(words)); };
  auto words = mics(4, R"(, "mics_hierarchical_params_gather": true)");
  EXPECT_TRUE(wanted(words));
  EXPECT_FALSE(wanted(mics(4)));
  EXPECT_FALSE(wanted({}));
  words.insert(words.end(), {"--collectives", "flat"});
  EXPECT_THAT(error_of<ConfigError>([&] { wanted(words); }), HasSubstr("remove one of them"));
}

TEST(NodeGroups, QuantizedGradientsAreThoseOfAMicroStep) {
  Words const words{"--reduce_once", "true", "--deepspeed",
                    R"({"zero_optimization": {"stage": 3, "zero_quantized_gradients": true}})"};
  EXPECT_THAT(refusal(words, 4, 2), HasSubstr("--reduce_once with zero_quantized_gradients"));
  EXPECT_EQ(placed(words, 4, 4).gradient_node_size, 0) << "values are reduced inside a node";
}

TEST(TreeOfSums, RefusesWhatDependsOnTheRanks) {
  auto const with = [](Words const& more, int ranks = 4) {
    Words words{"--reproducible", "world"};
    words.insert(words.end(), more.begin(), more.end());
    return refusal(words, ranks, ranks);
  };
  EXPECT_EQ(placed({"--reproducible", "world"}, 4, 4).world_size, 4);
  EXPECT_THAT(with({}, 3), HasSubstr("on 3 ranks, and a binary tree"));
  EXPECT_THAT(with({"--gradient_accumulation_steps", "3"}), HasSubstr("steps is 3"));
  EXPECT_THAT(with({"--optim", "adafactor"}), HasSubstr("optimizer Adafactor"));
  EXPECT_THAT(with({"--deepspeed", R"({"communication_data_type": "bf16"})"}),
              HasSubstr("communication_data_type is bf16"));
  EXPECT_THAT(with({"--deepspeed", R"({"gradient_allreduce_op": "sum"})"}),
              HasSubstr("grow with the ranks"));
  EXPECT_THAT(with(mics(2)), HasSubstr("shard groups"));
  EXPECT_THAT(with({"--deepspeed",
                    R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true}})"}),
              HasSubstr("quantized collectives"));
}

}  // namespace
}  // namespace tessera::config
