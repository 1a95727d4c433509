/// Numbering and argument checks of the calls on one rank, for every rank of groups of several
/// sizes in one process.
#include "base/checked_operations.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

memory::TensorView view(std::vector<float>& values, std::int64_t begin, std::int64_t count) {
  return {values.data() + begin, Dtype::fp32, {count}};
}

TEST(CheckedOperations, NumbersEveryCallAlsoAfterAnError) {
  std::vector<float> data(12);
  CheckedOperations operations(Group{1, 3});
  EXPECT_EQ(operations.barrier().sequence, 1u);
  EXPECT_THROW((void)operations.broadcast(view(data, 0, 12), 3), InternalError);
  EXPECT_EQ(operations.all_reduce(view(data, 0, 12), ReduceOp::max).sequence, 3u);
}

TEST(CheckedOperations, ScatterAndGatherNeedEqualCountsOnTheRoot) {
  std::vector<float> all(21), part(7);
  for (int rank = 0; rank < 3; ++rank) {
    CheckedOperations operations(Group{rank, 3});
    EXPECT_EQ(operations.scatter(view(all, 0, 21), view(part, 0, 7), 1).numel, 7);
    EXPECT_EQ(operations.gather(view(part, 0, 7), view(all, 0, 21), 1).root, 1);
    if (rank != 1) continue;
    EXPECT_THROW((void)operations.scatter(view(all, 0, 20), view(part, 0, 7), 1), InternalError);
    EXPECT_THROW((void)operations.gather(view(part, 0, 7), view(all, 0, 14), 1), InternalError);
  }
}

/// The output of a reduce-scatter may overlap the input only at or before this rank's shard.
TEST(CheckedOperations, OverlapOfAReduceScatter) {
  std::vector<float> data(30);
  auto const in = view(data, 0, 30);
  CheckedOperations operations(Group{1, 3});
  StridedShards const shards{6, 10, 2};
  EXPECT_NO_THROW((void)operations.reduce_scatter(in, shards, view(data, 12, 6)));
  EXPECT_NO_THROW((void)operations.reduce_scatter(in, shards, view(data, 10, 6)));
  EXPECT_THROW((void)operations.reduce_scatter(in, shards, view(data, 13, 6)), InternalError);
  EXPECT_THROW((void)operations.reduce_scatter(in, shards, view(data, 2, 6)), InternalError);
  EXPECT_THROW((void)operations.reduce_scatter(in, shards, view(data, 12, 5)), InternalError);
}

TEST(CheckedOperations, AreDescribedWithTheirSizes) {
  std::vector<float> data(30);
  CheckedOperations operations(Group{0, 3});
  EXPECT_EQ(describe(operations.reduce(view(data, 0, 30), ReduceOp::min, 2)),
            "reduce number 1 (30 fp32 elements, 120 bytes per rank, min, root 2)");
  EXPECT_EQ(describe(operations.all_gather(view(data, 0, 30), {4, 10, 1})),
            "all_gather number 2 (4 fp32 elements, 16 bytes per rank, stride 10, offset 1)");
  EXPECT_EQ(describe(operations.barrier()), "barrier number 3");
  EXPECT_EQ(describe(operations.allocate(64)), "allocate number 4 (64 bytes)");
}

}  // namespace
}  // namespace tessera::comm::detail
