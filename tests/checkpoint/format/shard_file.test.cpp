#include "format/detail/shard_file.hpp"

#include "fixture.hpp"

using namespace tessera;
using namespace tessera::test;
using namespace tessera::checkpoint::detail;

namespace {

TEST(ShardFile, GroupsFollowTheStarts) {
  auto const own = rank_groups(3, {});
  ASSERT_EQ(own.size(), 3u);
  EXPECT_EQ(own[2].first, Rank(2));
  EXPECT_EQ(own[2].count, 1);
  auto const shared = rank_groups(5, starts_at({0, 1, 4}));
  ASSERT_EQ(shared.size(), 3u);
  EXPECT_EQ(shared[1].index, 1);
  EXPECT_EQ(shared[1].first, Rank(1));
  EXPECT_EQ(shared[1].end(), Rank(4));
  for (int rank = 0; rank < 5; ++rank) {
    auto const group = group_of(Rank(rank), 5, starts_at({0, 1, 4}));
    EXPECT_TRUE(group.first <= Rank(rank) && Rank(rank) < group.end()) << rank;
  }
}

TEST(ShardFile, NamesSortLikeNumbers) {
  EXPECT_EQ(shard_name(7), "shard_00007.h5");
  EXPECT_EQ(shard_name(12345), "shard_12345.h5");
}

TEST(ShardFile, ARecordOfAShardCanBeSent) {
  WrittenShard shard{4096,
                     {{{512, {1, 2}, {}}, {768, {3}, {}}}, {{1024, {}, {}}, {2048, {4}, {}}}}};
  shard.microseconds = 1234567;
  auto const back = WrittenShard::unpack(shard.pack());
  EXPECT_EQ(back.bytes, 4096);
  EXPECT_EQ(back.microseconds, 1234567);
  EXPECT_EQ(back.extents, shard.extents);
  std::string const text = shard.pack();
  EXPECT_THROW(WrittenShard::unpack(text.substr(0, text.size() - 8)), InternalError);
}

TEST(ShardFile, RanksFillTheirPartsOfOneFile) {
  ScratchDirectory const dir;
  auto const units = toy_units();
  zero::PartitionPlan const plan(units, 2);
  ShardIdentity const identity{"run", 3, {0, first_rank, 2}, 2, 1};
  create_shard_structure(dir / "shard.h5", identity, plan,
                         {{optim::Extent::elementwise, {"fp32", "exp_avg", "exp_avg_sq"}}});
  auto const empty = fs::file_size(dir / "shard.h5");
  for (int rank = 0; rank < 2; ++rank) {
    RankState state(plan, rank);
    auto const written = fill_shard(dir / "shard.h5", identity, plan, Rank(rank),
                                    state.fill(3).views(), std::int64_t{4} << 20);
    EXPECT_EQ(written.extents.size(), plan.extents(Rank(rank)).size());
    std::ifstream file(dir / "shard.h5", std::ios::binary);
    file.seekg(written.extents[0][0].file_offset);
    float first = 0;
    file.read(reinterpret_cast<char*>(&first), sizeof first);
    EXPECT_EQ(
        first,
        state.memory(
            0)[static_cast<std::size_t>(plan.extents(Rank(rank))[0].partition_offset.value())]);
  }
  EXPECT_EQ(fs::file_size(dir / "shard.h5"), empty) << "the space was reserved";
}

}  // namespace
