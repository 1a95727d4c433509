/// The plan is a value: every rank of every world is checked in one process.
#include "tessera/zero/layout/partition_plan.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::zero {
namespace {

memory::ParameterSpec parameter(std::string name, std::vector<std::int64_t> shape,
                                bool decays = true) {
  memory::ParameterSpec p;
  p.name = std::move(name);
  p.shape = std::move(shape);
  p.decays = decays;
  return p;
}

std::vector<memory::UnitSpec> odd_units() {
  return {{"embedding", {parameter("wte", {101, 7}), parameter("wpe", {13, 7})}},
          {"block",
           {parameter("w", {7, 21}), parameter("b", {21}, false), parameter("scalar", {1}, false),
            parameter("w4", {3, 2, 5, 1})}},
          {"tiny", {parameter("one", {1})}},
          {"head", {parameter("even", {64, 32})}}};
}

struct World {
  int ranks;
  std::int64_t alignment;
};

class EveryWorld : public ::testing::TestWithParam<World> {
 protected:
  PartitionPlan plan{odd_units(), GetParam().ranks, GetParam().alignment};
};

TEST_P(EveryWorld, ShardsAreEqualAlignedAndHoldTheUnit) {
  PartitionOffset end;
  for (auto const& unit : plan.units()) {
    EXPECT_EQ(unit.padded_numel, unit.shard_numel * plan.ranks());
    EXPECT_EQ(unit.shard_numel % plan.alignment(), 0) << unit.name;
    EXPECT_EQ(unit.partition_offset, end) << unit.name;
    end += unit.shard_numel;
    UnitOffset next;
    for (auto const& p : unit.parameters) {
      EXPECT_EQ(p.offset.value() % plan.alignment(), 0) << p.name;
      EXPECT_GE(p.offset, next) << p.name << " overlaps the parameter before it";
      EXPECT_LT(p.offset - next, plan.alignment())
          << p.name << " leaves a gap that alignment does not explain";
      next = p.offset + p.numel;
    }
    EXPECT_LE(next, UnitOffset(unit.padded_numel));
    EXPECT_LT(UnitOffset(unit.padded_numel) - next, plan.alignment() * (plan.ranks() + 1))
        << unit.name << ": more padding than a line a rank";
  }
  EXPECT_EQ(plan.partition_numel(), end.value());
  EXPECT_EQ(plan.padded_count(), end.value() * plan.ranks());
}

TEST_P(EveryWorld, EveryElementHasOneOwner) {
  std::vector<std::vector<std::vector<int>>> owners;
  for (auto const& unit : plan.units()) {
    owners.emplace_back();
    for (auto const& p : unit.parameters)
      owners.back().emplace_back(static_cast<std::size_t>(p.numel), 0);
  }
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    PartitionOffset end;
    for (auto const& piece : plan.extents(Rank(rank))) {
      auto const& unit = plan.unit(piece.unit);
      auto const& slot = unit.parameters[static_cast<std::size_t>(piece.parameter)];
      ASSERT_GT(piece.numel, 0);
      EXPECT_GE(piece.partition_offset, end) << "pieces are not in partition order";
      end = piece.partition_offset + piece.numel;
      // one element seen from the unit's buffer and from the rank's partition
      EXPECT_EQ(slot.offset.value() + piece.parameter_offset.value(),
                rank * unit.shard_numel + (piece.partition_offset - unit.partition_offset));
      auto& count = owners[position(piece.unit)][static_cast<std::size_t>(piece.parameter)];
      for (std::int64_t i = 0; i < piece.numel; ++i)
        ++count[static_cast<std::size_t>(piece.parameter_offset.value() + i)];
    }
    EXPECT_LE(end, PartitionOffset(plan.partition_numel()));
  }
  for (auto const& unit : owners)
    for (auto const& p : unit)
      for (int count : p) ASSERT_EQ(count, 1);
}

std::vector<World> worlds() {
  std::vector<World> out;
  for (int ranks = 1; ranks <= 64; ++ranks)
    out.push_back({ranks, PartitionPlan::default_alignment});
  for (std::int64_t alignment : {1, 2, 64, 1024}) out.push_back({3, alignment});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Worlds, EveryWorld, ::testing::ValuesIn(worlds()), [](auto const& info) {
  return "ranks_" + std::to_string(info.param.ranks) + "_alignment_" +
         std::to_string(info.param.alignment);
});

TEST(PartitionPlan, TableOfTheBlockUnit) {
  // w 147 at 0, b 21 at 160, scalar at 192, w4 30 at 224: 254 elements of buffer
  struct Row {
    int ranks;
    std::int64_t shard, padded;
  };
  for (Row const row : {Row{1, 256, 256},
                        {2, 128, 256},
                        {3, 96, 288},
                        {4, 64, 256},
                        {5, 64, 320},
                        {8, 32, 256},
                        {9, 32, 288},
                        {64, 32, 2048}}) {
    PartitionPlan const plan(odd_units(), row.ranks);
    EXPECT_EQ(plan.unit(UnitIndex(1)).parameters[3].offset, UnitOffset(224));
    EXPECT_EQ(plan.unit(UnitIndex(1)).numel, 199);
    EXPECT_EQ(plan.unit(UnitIndex(1)).shard_numel, row.shard) << row.ranks << " ranks";
    EXPECT_EQ(plan.unit(UnitIndex(1)).padded_numel, row.padded) << row.ranks << " ranks";
  }
}

ShardExtent extent(int parameter, std::int64_t in_parameter, std::int64_t in_partition,
                   std::int64_t numel) {
  return {first_unit, parameter, ParameterOffset(in_parameter), PartitionOffset(in_partition),
          numel};
}

TEST(PartitionPlan, PiecesOfTheBlockUnitOverThreeRanks) {
  std::vector<memory::UnitSpec> const block{odd_units()[1]};
  PartitionPlan const plan(block, 3);
  EXPECT_EQ(plan.extents(Rank(0)), std::vector{extent(0, 0, 0, 96)});
  EXPECT_EQ(plan.extents(Rank(1)), (std::vector{extent(0, 96, 0, 51), extent(1, 0, 64, 21)}));
  EXPECT_EQ(plan.extents(Rank(2)), (std::vector{extent(2, 0, 0, 1), extent(3, 0, 32, 30)}));
}

/// The embedding's shards over 3 ranks have 288 elements, those of the block follow at 288 of each
/// partition. Element 100 of the block's w is element 4 of rank 1's shard, its b starts at 160.
TEST(PartitionPlan, ConvertsOffsetsOfOneElement) {
  PartitionPlan const plan(odd_units(), 3);
  auto const& block = plan.unit(UnitIndex(1));
  ASSERT_EQ(block.partition_offset, PartitionOffset(288));
  ASSERT_EQ(block.shard_numel, 96);
  EXPECT_EQ(block.unit_offset(Rank(1), ShardOffset(4)), UnitOffset(100));
  EXPECT_EQ(block.shard_offset(Rank(1), UnitOffset(100)), ShardOffset(4));
  EXPECT_EQ(block.partition_offset_of(ShardOffset(4)), PartitionOffset(292));
  EXPECT_EQ(block.shard_offset(PartitionOffset(292)), ShardOffset(4));
  auto const& w = block.parameters[0];
  auto const& b = block.parameters[1];
  EXPECT_EQ(w.unit_offset(ParameterOffset(100)), UnitOffset(100));
  EXPECT_EQ(w.end(), UnitOffset(147));
  EXPECT_EQ(b.unit_offset(ParameterOffset(3)), UnitOffset(163));
  EXPECT_EQ(b.parameter_offset(UnitOffset(163)), ParameterOffset(3));
  EXPECT_EQ(b.end(), UnitOffset(181));
}

/// A unit of one coordinate of an axis is cut over the ranks with that coordinate.
TEST(PartitionPlan, AUnitMayBeOnSomeRanks) {
  std::vector<memory::UnitSpec> const units{{"all", {{"a", {100}, {}, true, {}}}},
                                            {"some", {{"b", {100}, {}, true, {}}}},
                                            {"both", {{"c", {100}, {}, true, {}}}}};
  Rank const one{1}, three{3};
  PartitionPlan const plan(units, 4, {{}, {one, three}, {Rank(0), one, Rank(2), three}});
  EXPECT_EQ(plan.units()[0], PartitionPlan(units, 4).units()[0]);
  EXPECT_TRUE(plan.units()[2].owners.empty()) << "all ranks";
  auto const& some = plan.units()[1];
  EXPECT_EQ(some.shard_numel, 64);
  EXPECT_EQ(some.padded_numel, 128);
  EXPECT_TRUE(some.is_on(three));
  EXPECT_FALSE(some.is_on(Rank(2)));
  EXPECT_EQ(some.unit_offset(three, ShardOffset(4)), UnitOffset(68));
  EXPECT_EQ(some.shard_offset(three, UnitOffset(68)), ShardOffset(4));
  std::vector<std::int64_t> covered(3);
  for (int rank = 0; rank < 4; ++rank)
    for (auto const& extent : plan.extents(Rank(rank))) {
      covered[position(extent.unit)] += extent.numel;
      EXPECT_TRUE(plan.unit(extent.unit).is_on(Rank(rank)));
    }
  EXPECT_EQ(covered, std::vector<std::int64_t>(3, 100));
  EXPECT_EQ(plan.of_extent(optim::Extent::scalar).units()[1].owners, some.owners);
  EXPECT_THROW(PartitionPlan(units, 4, {{}, {three, one}, {}}), InternalError);
  EXPECT_THROW(PartitionPlan(units, 4, {{}, {Rank(4)}, {}}), InternalError);
  EXPECT_THROW(PartitionPlan(units, 4, {{}, {}}), InternalError);
}

TEST(PartitionPlan, CountsParametersAndLargestUnit) {
  PartitionPlan const plan(odd_units(), 4);
  EXPECT_EQ(plan.parameter_count(), 101 * 7 + 13 * 7 + 199 + 1 + 64 * 32);
  EXPECT_EQ(plan.largest_unit(), 2048);
}

TEST(PartitionPlan, IsAValue) {
  PartitionPlan const a(odd_units(), 4), b(odd_units(), 4), c(odd_units(), 5);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(PartitionPlan, RefusesWhatCannotBePartitioned) {
  EXPECT_THROW(PartitionPlan(odd_units(), 0), InternalError);
  EXPECT_THROW(PartitionPlan(odd_units(), 2, 0), InternalError);
  EXPECT_THROW(PartitionPlan({{"u", {parameter("empty", {4, 0})}}}, 2), InternalError);
}

/// A state with one value per row, per column or per parameter has the partition of a model whose
/// parameters have those shapes.
TEST(PartitionOfAnExtent, IsThePlanOfTheReducedShapes) {
  PartitionPlan const plan(odd_units(), 3, 4);
  EXPECT_EQ(plan.of_extent(optim::Extent::elementwise), plan);
  auto const rows = plan.of_extent(optim::Extent::per_row);
  EXPECT_EQ(rows, PartitionPlan({{"embedding", {parameter("wte", {101}), parameter("wpe", {13})}},
                                 {"block",
                                  {parameter("w", {7}), parameter("b", {21}, false),
                                   parameter("scalar", {1}, false), parameter("w4", {3})}},
                                 {"tiny", {parameter("one", {1})}},
                                 {"head", {parameter("even", {64})}}},
                                3, 4));
  // 101 values end at 104, 13 more at 117: 39 per rank, rounded up to 40
  EXPECT_EQ(rows.unit(UnitIndex(0)).shard_numel, 40);
  auto const columns = plan.of_extent(optim::Extent::per_column);
  EXPECT_EQ(columns.unit(UnitIndex(0)).numel, 14);
  EXPECT_EQ(columns.unit(UnitIndex(1)).numel, 21 + 1 + 1 + 10);
  auto const scalars = plan.of_extent(optim::Extent::scalar);
  EXPECT_EQ(scalars.parameter_count(), 8);
  EXPECT_EQ(scalars.unit(UnitIndex(1)).shard_numel, 8);
}

}  // namespace
}  // namespace tessera::zero
