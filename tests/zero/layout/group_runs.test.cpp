#include "layout/group_runs.hpp"

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

/// The block has w at [0, 40), b at [64, 72), k at [96, 120).
UnitLayout const& block(PartitionPlan const& plan) { return plan.unit(UnitIndex(0)); }
UnitOffset end_of(UnitLayout const& unit) { return UnitOffset(unit.padded_numel); }

TEST(GroupRuns, CutAtGroupBordersAndKeepParameterBorders) {
  PartitionPlan const plan(test::two_units(), 1);
  auto const spec = optim::make_spec("AdamW");
  auto const runs = group_runs(block(plan), UnitOffset(0), end_of(block(plan)), spec);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0], (GroupRun{UnitOffset(0), 40, 0, {{{5, 8}, 40, 0, 0, 40, "w"}}}));
  EXPECT_EQ(runs[1], (GroupRun{UnitOffset(64), 8, 1, {{{8}, 8, 0, 0, 8, "b"}}}));
  EXPECT_EQ(runs[2], (GroupRun{UnitOffset(96), 24, 0, {{{3, 2, 4}, 24, 0, 0, 24, "k"}}}));
}

TEST(GroupRuns, JoinNeighborsOfOneGroup) {
  PartitionPlan const plan(test::two_units(), 1);
  auto const spec = optim::make_spec("AdamW", {}, optim::one_group());
  auto const runs = group_runs(block(plan), UnitOffset(0), end_of(block(plan)), spec);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].begin, UnitOffset(0));
  EXPECT_EQ(runs[0].numel, 120);
  ASSERT_EQ(runs[0].parameters.size(), 3u);
  EXPECT_EQ(runs[0].parameters[2], (optim::ParameterRun{{3, 2, 4}, 24, 0, 96, 24, "k"}));
}

/// A region that begins and ends inside parameters.
TEST(GroupRuns, OfAShardSayWhereTheyBeginInTheirParameter) {
  PartitionPlan const plan(test::two_units(), 1);
  auto const spec = optim::make_spec("SGD");
  auto const runs = group_runs(block(plan), UnitOffset(10), UnitOffset(68), spec);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0], (GroupRun{UnitOffset(10), 30, 0, {{{5, 8}, 40, 10, 0, 30, "w"}}}));
  EXPECT_EQ(runs[1], (GroupRun{UnitOffset(64), 4, 1, {{{8}, 8, 0, 0, 4, "b"}}}));
  EXPECT_TRUE(group_runs(block(plan), UnitOffset(40), UnitOffset(64), spec).empty())
      << "padding only";
}

/// AdamW in bf16: reads a gradient of 2 bytes, reads and writes 12, writes a weight of 2.
TEST(UpdateBytes, AreReadsAndWritesOfEachElement) {
  auto const spec = optim::make_spec("AdamW");
  float value = 0.0f;
  optim::Segment segment;
  segment.master = segment.weights_out = &value;
  segment.states = {&value, &value};
  segment.numel = 10;
  optim::Segments segments{{segment, segment}, Dtype::bf16, Dtype::bf16, Dtype::fp32};
  EXPECT_EQ(update_bytes(segments, spec), 2u * 10 * (2 + 24 + 2));
  for (auto& s : segments.list) {
    s.weights_out = nullptr;  // the master weights are the weights
    s.states = {nullptr, &value};
  }
  segments.gradient_dtype = Dtype::fp32;
  EXPECT_EQ(update_bytes(segments, spec), 2u * 10 * (4 + 16));
}

}  // namespace
}  // namespace tessera::zero::detail
