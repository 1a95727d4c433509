/// Against the elements of the unit one by one.
#include "layout/compact_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "detail_fixture.hpp"
#include "transfer/compact_blocks.hpp"

namespace tessera::zero::detail {
namespace {

/// A table with odd rows between two other parameters.
PartitionPlan plan_of(int ranks) {
  return {{{"embedding",
            {test::parameter("before", {9}), test::parameter("table", {37, 5}),
             test::parameter("after", {3, 11})}}},
          ranks};
}
constexpr std::size_t table = 1;

/// Whether an element of the unit is a late one, and of which parameter.
std::optional<std::size_t> parameter_of(UnitLayout const& unit, std::int64_t at,
                                        std::vector<std::int32_t> const& rows) {
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    auto const& slot = unit.parameters[p];
    if (UnitOffset(at) < slot.offset || UnitOffset(at) >= slot.end()) continue;
    auto const row = static_cast<std::int32_t>((UnitOffset(at) - slot.offset) / 5);
    if (p != table || std::find(rows.begin(), rows.end(), row) != rows.end()) return p;
  }
  return {};
}

TEST(CompactLayout, HasEveryLateElementOnceInTheOrderOfTheUnit) {
  for (int const ranks : {1, 2, 3, 4, 7})
    for (std::vector<std::int32_t> const& rows :
         {std::vector<std::int32_t>{0}, {36}, {3, 4, 5, 17}, {0, 12, 13, 36}}) {
      auto const plan = plan_of(ranks);
      auto const& unit = plan.unit(first_unit);
      CompactLayout const layout(unit, table, rows);
      std::int64_t last = -1;
      for (std::int64_t at = 0; at < unit.padded_numel; ++at) {
        auto const pieces = layout.pieces(UnitOffset(at), UnitOffset(at + 1));
        auto const parameter = parameter_of(unit, at, rows);
        ASSERT_EQ(pieces.size(), parameter ? 1u : 0u) << "element " << at;
        if (!parameter) continue;
        EXPECT_EQ(pieces[0].numel, 1);
        EXPECT_GT(pieces[0].here, last);
        EXPECT_EQ(layout.place_of(UnitOffset(at)), pieces[0].here);
        EXPECT_GE(pieces[0].here, layout.begin_of(*parameter));
        last = pieces[0].here;
      }
      EXPECT_LT(last, layout.numel());
      EXPECT_EQ(layout.numel(),
                CompactLayout::numel_of(unit, table, static_cast<std::int64_t>(rows.size())));
      EXPECT_EQ(layout.place_of(UnitOffset(unit.padded_numel)), layout.numel());
    }
}

/// The runs of the ranks are one after the other, and a rank's pieces are in its run.
TEST(CompactLayout, KeepsWhatARankOwnsTogether) {
  for (int const ranks : {1, 2, 3, 4, 7}) {
    auto const plan = plan_of(ranks);
    auto const& unit = plan.unit(first_unit);
    CompactLayout const layout(unit, table, {0, 12, 13, 36});
    std::int64_t numel = 0;
    for (int r = 0; r < ranks; ++r) {
      UnitOffset const begin(r * unit.shard_numel), end = begin + unit.shard_numel;
      EXPECT_LE(layout.place_of(begin), layout.place_of(end));
      for (auto const& piece : layout.pieces(begin, end)) {
        EXPECT_GE(piece.in_unit, begin);
        EXPECT_LE(piece.in_unit + piece.numel, end);
        EXPECT_GE(piece.here, layout.place_of(begin));
        EXPECT_LE(piece.here + piece.numel, layout.place_of(end));
        numel += piece.numel;
      }
    }
    EXPECT_EQ(numel, 9 + 4 * 5 + 33) << ranks << " ranks";
  }
}

TEST(CompactLayout, JoinsNeighboringRows) {
  auto const plan = plan_of(1);
  auto const& unit = plan.unit(first_unit);
  CompactLayout const layout(unit, table, {3, 4, 5, 17});
  UnitOffset const begin = unit.parameters[table].offset;
  EXPECT_EQ(layout.pieces(begin, begin + 37 * 5),
            (std::vector<CompactLayout::Piece>{{begin + 15, layout.begin_of(table), 15},
                                               {begin + 85, layout.begin_of(table) + 15, 5}}));
}

TEST(CompactLayout, LeavesHalfOfTheUnitOut) {
  auto const plan = plan_of(1);
  auto const& unit = plan.unit(first_unit);
  auto const most = CompactLayout::most_rows(unit, table);
  EXPECT_LE(CompactLayout::numel_of(unit, table, std::max<std::int64_t>(most, 0)),
            most < 0 ? unit.numel : unit.numel / 2);
  PartitionPlan const large({{"embedding", {test::parameter("table", {1000, 8})}}}, 2);
  auto const rows = CompactLayout::most_rows(large.unit(first_unit), 0);
  EXPECT_LE(CompactLayout::numel_of(large.unit(first_unit), 0, rows), 4000);
  EXPECT_GT(rows, 490);
  auto const quarter = CompactLayout::most_rows(large.unit(first_unit), 0, 4);
  EXPECT_LE(CompactLayout::numel_of(large.unit(first_unit), 0, quarter), 2000);
  EXPECT_GT(quarter, 240);
}

/// Every element of a layout has one owner and one block; what a rank sends, another receives.
TEST(CompactLayout, IsTheSameInRunsAndInBlocks) {
  for (int const ranks : {1, 2, 3, 4, 7}) {
    auto const plan = plan_of(ranks);
    auto const& unit = plan.unit(first_unit);
    CompactLayout const layout(unit, table, {0, 12, 13, 36});
    CompactBlocks const over(layout, unit, ranks);
    EXPECT_EQ(over.block() % 32, 0);
    EXPECT_GE(over.all_blocks(), layout.numel());
    std::vector<int> owner(static_cast<std::size_t>(layout.numel()), -1), received = owner;
    for (int r = 0; r < ranks; ++r) {
      auto const runs = over.blocks_of_run(r), blocks = over.owners_of_block(r);
      for (int q = 0; q < ranks; ++q) {
        auto const i = static_cast<std::size_t>(q);
        EXPECT_EQ(runs.counts[i], over.owners_of_block(q).counts[static_cast<std::size_t>(r)]);
        for (std::int64_t k = 0; k < runs.counts[i]; ++k) {
          auto const at = over.run_begin(r) + runs.offsets[i] + k;
          EXPECT_EQ(at / over.block(), q);
          EXPECT_EQ(std::exchange(owner[static_cast<std::size_t>(at)], r), -1);
        }
        for (std::int64_t k = 0; k < blocks.counts[i]; ++k)
          received[static_cast<std::size_t>(r * over.block() + blocks.offsets[i] + k)] = q;
      }
    }
    EXPECT_EQ(owner, received);
    EXPECT_EQ(std::count(owner.begin(), owner.end(), -1), 0);
  }
}

}  // namespace
}  // namespace tessera::zero::detail
