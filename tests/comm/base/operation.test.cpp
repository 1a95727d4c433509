#include "base/operation.hpp"

#include <gtest/gtest.h>

namespace tessera::comm::detail {
namespace {

TEST(Operation, ShardsFit) {
  EXPECT_TRUE(shards_fit({10, 10, 0}, 3, 30));
  EXPECT_FALSE(shards_fit({10, 10, 0}, 3, 29));
  EXPECT_TRUE(shards_fit({4, 10, 6}, 3, 30));
  EXPECT_FALSE(shards_fit({5, 10, 6}, 3, 40)) << "the shard exceeds its region";
  EXPECT_TRUE(shards_fit({7, 0, 3}, 1, 10)) << "one rank needs no stride";
  EXPECT_FALSE(shards_fit({-1, 10, 0}, 3, 30));
  EXPECT_TRUE(shards_fit({0, 0, 0}, 3, 0));
}

TEST(Operation, SlicesCoverAllElementsOnceAndDifferByAtMostOne) {
  for (int const ranks : {1, 2, 3, 7})
    for (std::int64_t const numel : {0, 1, 6, 7, 1001}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        Slice const slice = slice_of(numel, ranks, Rank(rank));
        EXPECT_EQ(slice.begin, next);
        EXPECT_GE(slice.count, numel / ranks);
        EXPECT_LE(slice.count, (numel + ranks - 1) / ranks);
        next += slice.count;
      }
      EXPECT_EQ(next, numel);
    }
}

TEST(Operation, IsDescribedByItsKindAndSizes) {
  EXPECT_EQ(describe(Operation{.kind = Kind::barrier, .sequence = 3}), "barrier number 3");
  EXPECT_EQ(describe(Operation{.kind = Kind::broadcast,
                               .dtype = Dtype::bf16,
                               .root = 2,
                               .numel = 8,
                               .stride = 8,
                               .sequence = 5}),
            "broadcast number 5 (8 bf16 elements, 16 bytes per rank, root 2)");
  EXPECT_EQ(describe(StridedShards{4, 10, 1}, 3),
            "the shards of 3 ranks (offset 1 + count 4 within stride 10)");
  Operation a{.kind = Kind::reduce, .op = ReduceOp::max, .root = 0, .numel = 4, .sequence = 1};
  Operation b = a;
  EXPECT_EQ(a, b);
  b.root = 1;
  EXPECT_NE(a, b) << "the ranks compare it";
}

}  // namespace
}  // namespace tessera::comm::detail
