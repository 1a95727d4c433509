#include "detail/deepspeed_zero.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "zero_keys.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::HasSubstr;

TEST(GroupKeys, NameTheSizeOfAShardGroup) {
  auto const c = resolved_zero(R"("stage": 3, "mics_shard_size": 2)");
  EXPECT_EQ(c.shard_group_size, 2);
  EXPECT_EQ(c.origins.at("shard_group_size"), Origin::deepspeed);
  EXPECT_EQ(describe(c).at("shard_group_size").at("value").as_int(), 2);
  for (char const* none : {"\"stage\": 3", R"("stage": 3, "mics_shard_size": -1)",
                           R"("stage": 2, "mics_shard_size": "auto")"})
    EXPECT_EQ(resolved_zero(none).shard_group_size, 0) << none;
}

TEST(GroupKeys, OfMiCSAreThoseOfStage3) {
  EXPECT_THAT(refusal_of_zero(R"("stage": 2, "mics_shard_size": 2)"),
              HasSubstr("zero_optimization.mics_shard_size is 2 at stage 2"));
  EXPECT_THAT(refusal_of_zero(R"("stage": 3, "mics_shard_size": -2)"),
              HasSubstr("mics_shard_size"));
}

TEST(GroupKeys, NameTheSizeOfASecondaryGroup) {
  EXPECT_EQ(resolved_zero(R"("stage": 3, "zero_hpz_partition_size": 2)").secondary_group_size, 2);
  EXPECT_EQ(resolved_zero(R"("stage": 1, "zero_hpz_partition_size": 1)").secondary_group_size, 1);
  EXPECT_THAT(refusal_of_zero(R"("stage": 2, "zero_hpz_partition_size": 2)"),
              HasSubstr("at stage 2"));
  EXPECT_THAT(refusal_of_zero(R"("stage": 3, "zero_hpz_partition_size": 2, "mics_shard_size": 2)"),
              HasSubstr("remove one of them"));
  EXPECT_THAT(refusal_of_zero(R"("stage": 3, "zero_hpz_partition_size": 0)"),
              HasSubstr("zero_hpz_partition_size is 0; it must be an integer of at least 1"));
}

TEST(GroupKeys, AHierarchicalGatherNeedsGroups) {
  EXPECT_TRUE(
      resolved_zero(R"("stage": 3, "mics_shard_size": 4, "mics_hierarchical_params_gather": true)")
          .hierarchical_gather);
  EXPECT_THAT(refusal_of_zero(R"("stage": 3, "mics_hierarchical_params_gather": true)"),
              HasSubstr("without groups"));
}

}  // namespace
}  // namespace tessera::config::detail
