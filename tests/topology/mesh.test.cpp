#include "tessera/topology/mesh.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::topology {
namespace {

/// Three axes; the ranks along the last one are consecutive.
Mesh three_axes() { return Mesh({{Axis::replicate, 2}, {Axis::sequence, 3}, {Axis::shard, 4}}); }

TEST(Mesh, NumbersRanksInRowMajorOrder) {
  auto const mesh = three_axes();
  EXPECT_EQ(mesh.size(), 24);
  int rank = 0;
  for (int replica = 0; replica < 2; ++replica)
    for (int part = 0; part < 3; ++part)
      for (int shard = 0; shard < 4; ++shard, ++rank) {
        EXPECT_EQ(mesh.coordinate(rank, Axis::replicate), replica);
        EXPECT_EQ(mesh.coordinate(rank, Axis::sequence), part);
        EXPECT_EQ(mesh.coordinate(rank, Axis::shard), shard);
        EXPECT_EQ(mesh.rank_at(
                      {{Axis::shard, shard}, {Axis::replicate, replica}, {Axis::sequence, part}}),
                  rank);
      }
  EXPECT_EQ(mesh.rank_at({{Axis::sequence, 1}}), 4) << "the other coordinates are 0";
}

TEST(Mesh, GroupsAlongSomeAxesAndAlongTheOthersCrossInOneRank) {
  auto const mesh = three_axes();
  for (AxisSet const axes : {AxisSet(), AxisSet(Axis::sequence), AxisSet(Axis::shard), data_axes,
                             AxisSet{Axis::sequence, Axis::shard}, all_axes})
    for (int rank = 0; rank < mesh.size(); ++rank) {
      auto const group = mesh.ranks_of_group(axes, rank);
      auto const crossing = mesh.ranks_of_group(axes.complement(), rank);
      EXPECT_EQ(static_cast<int>(group.size()), mesh.size(axes));
      EXPECT_EQ(mesh.size(axes) * mesh.size(axes.complement()), mesh.size());
      std::set<int> const members(group.begin(), group.end());
      std::vector<int> common;
      for (int const other : crossing)
        if (members.contains(other)) common.push_back(other);
      EXPECT_EQ(common, std::vector{rank});
      EXPECT_EQ(group[static_cast<std::size_t>(mesh.coordinate(rank, axes))], rank)
          << "a coordinate is the position in the group";
    }
}

TEST(Mesh, GroupsAreThoseOfASplit) {
  auto const mesh = three_axes();
  auto const shards = mesh.group(Axis::shard, 17);
  EXPECT_EQ(shards.color, 4);
  EXPECT_EQ(shards.key, 17);
  EXPECT_EQ(shards.size, 4);
  EXPECT_EQ(shards.name, "shard group 4");
  EXPECT_EQ(mesh.ranks_of_group(Axis::shard, 17), (std::vector{16, 17, 18, 19}));
  EXPECT_EQ(mesh.group(Axis::replicate, 17).name, "replica group 5");
  EXPECT_EQ(mesh.group({Axis::replicate, Axis::shard}, 17).name, "replica-shard group 1");
  EXPECT_EQ(mesh.ranks_of_group({Axis::replicate, Axis::shard}, 17),
            (std::vector{4, 5, 6, 7, 16, 17, 18, 19}));
  EXPECT_EQ(mesh.group(Axis::expert, 17).size, 1);
  EXPECT_EQ(mesh.group(Axis::expert, 17).name, "single-rank group 17");
}

/// Experts are divided among ranks that read different samples; a sequence is divided among ranks
/// that read the same ones.
TEST(Mesh, SplitsTheBatchAlongEveryAxisButSequence) {
  auto const mesh = three_axes();
  EXPECT_EQ(mesh.data_size(), 8);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    EXPECT_EQ(mesh.data_coordinate(rank),
              mesh.coordinate(rank, Axis::replicate) * 4 + mesh.coordinate(rank, Axis::shard));
  }
  EXPECT_EQ(Mesh({{Axis::expert, 2}, {Axis::shard, 4}}).data_size(), 8);
  EXPECT_EQ(Mesh({{Axis::sequence, 8}}).data_size(), 1);
}

TEST(Mesh, AnAxisOfOneRankIsAnAbsentOne) {
  Mesh const with({{Axis::replicate, 1}, {Axis::shard, 4}, {Axis::sequence, 1}});
  EXPECT_EQ(with, Mesh({{Axis::shard, 4}}));
  EXPECT_NE(with, Mesh({{Axis::replicate, 4}}));
  EXPECT_NE(Mesh({{Axis::replicate, 2}, {Axis::shard, 2}}),
            Mesh({{Axis::shard, 2}, {Axis::replicate, 2}}));
  EXPECT_EQ(with.size(Axis::sequence), 1);
  EXPECT_EQ(with.coordinate(3, Axis::sequence), 0);
  EXPECT_EQ(describe(with), "shard 4");
  EXPECT_EQ(describe(three_axes()), "replicate 2 x sequence 3 x shard 4");
  EXPECT_EQ(describe(Mesh({})), "1 rank");
  EXPECT_EQ(Mesh({}).size(), 1);
}

/// The groups of data parallelism are those of consecutive ranks and of their equals.
TEST(Mesh, OfDataParallelismHasShardGroupsAndReplicaGroups) {
  EXPECT_EQ(data_parallel_mesh(6), Mesh({{Axis::shard, 6}}));
  EXPECT_EQ(data_parallel_mesh(1), Mesh({}));
  for (int const size : {2, 3}) {
    auto const mesh = data_parallel_mesh(6, size);
    EXPECT_EQ(mesh, Mesh({{Axis::replicate, 6 / size}, {Axis::shard, size}}));
    EXPECT_EQ(mesh.data_size(), 6);
    for (int rank = 0; rank < 6; ++rank) {
      EXPECT_EQ(mesh.data_coordinate(rank), rank);
      for (auto const& [got, expected] :
           {std::pair(mesh.group(Axis::shard, rank), shard_group(6, rank, size)),
            std::pair(mesh.group(Axis::replicate, rank), replica_group(6, rank, size))}) {
        EXPECT_EQ(got.color, expected.color);
        EXPECT_EQ(got.key, expected.key);
        EXPECT_EQ(got.size, expected.size);
        EXPECT_EQ(got.name, expected.name);
      }
    }
  }
  EXPECT_THROW((void)data_parallel_mesh(6, 4), ConfigError);
  EXPECT_THROW((void)data_parallel_mesh(6, -1), ConfigError);
}

TEST(Mesh, RefusesSizesAndRanksThatAreNone) {
  EXPECT_THROW(Mesh({{Axis::shard, 0}}), InternalError);
  EXPECT_THROW(Mesh({{Axis::shard, 2}, {Axis::shard, 3}}), InternalError);
  EXPECT_THROW((void)three_axes().coordinate(24, Axis::shard), InternalError);
  EXPECT_THROW((void)three_axes().group(Axis::shard, -1), InternalError);
  EXPECT_THROW((void)three_axes().rank_at({{Axis::shard, 4}}), InternalError);
  EXPECT_THROW((void)three_axes().rank_at({{Axis::expert, 1}}), InternalError);
}

}  // namespace
}  // namespace tessera::topology
