#include "layout/unit_views.hpp"

#include <gtest/gtest.h>

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

TEST(UnitViews, ParametersStartAtTheirOffsets) {
  test::Parts parts;
  auto const& layout = parts.plan.unit(first_unit);
  std::vector<float> values(static_cast<std::size_t>(layout.padded_numel));
  auto const views = parameter_views(layout, values.data(), Dtype::fp32);
  ASSERT_EQ(views.size(), layout.parameters.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(views[i].as<float>(), values.data() + layout.parameters[i].offset.value());
    EXPECT_EQ(views[i].numel(), layout.parameters[i].numel);
  }
}

TEST(UnitViews, PaddingAndParametersAreTheBuffer) {
  test::Parts parts;
  for (auto const& layout : parts.plan.units()) {
    std::int64_t covered = layout.numel;
    for (auto const& run : padding_runs(layout)) {
      covered += run.numel;
      for (auto const& p : layout.parameters)
        EXPECT_TRUE(run.begin >= p.end() || run.begin + run.numel <= p.offset) << p.name;
    }
    EXPECT_EQ(covered, layout.padded_numel);
  }
}

TEST(UnitViews, CutShardsCoverEachShardOnceInOrder) {
  PartitionPlan const plan(test::two_units(), 2);
  auto const& unit = plan.unit(first_unit);
  for (std::int64_t const largest : {std::int64_t{1}, std::int64_t{64}, std::int64_t{1} << 40}) {
    std::int64_t next = 0;
    for (auto const& shards : cut_blocks(unit, 2, largest)) {
      EXPECT_EQ(shards.offset, next);
      EXPECT_EQ(shards.stride, unit.shard_numel);
      EXPECT_GT(shards.count, 0);
      next += shards.count;
    }
    EXPECT_EQ(next, unit.shard_numel) << largest;
  }
  EXPECT_EQ(cut_blocks(unit, 2, std::int64_t{1} << 40).size(), 1u);
  EXPECT_GT(cut_blocks(unit, 2, 64).size(), 1u);
}

}  // namespace
}  // namespace tessera::zero::detail
