#include "tessera/comm/compose/mesh.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm_test.hpp"

namespace tessera::comm::test {
namespace {

using topology::Axis;
using topology::AxisSet;

/// Half of the ranks along an inner and an outer axis.
topology::Mesh shape_of(int ranks, Axis outer, Axis inner) {
  return topology::Mesh({{outer, ranks > 1 ? 2 : 1}, {inner, ranks > 1 ? ranks / 2 : 1}});
}

class CommMesh : public ::testing::Test {
 protected:
  /// Sum over a group of the numbers of its ranks in the job.
  std::int64_t sum_of_ranks(Collectives& group) {
    return all_reduce_value(group, std::int64_t{world->rank()}, ReduceOp::sum);
  }
  std::unique_ptr<RecordingCollectives> world =
      make_recording(make_mpi(tessera::test::session(), 60s));
  int const ranks = world->size(), rank = world->rank();
};

TEST_F(CommMesh, GroupsAreThoseOfTheValue) {
  Mesh mesh(*world, shape_of(ranks, Axis::sequence, Axis::shard));
  for (AxisSet const axes : {AxisSet(Axis::sequence), AxisSet(Axis::shard), topology::data_axes,
                             topology::all_axes, AxisSet()}) {
    auto& group = mesh.group(axes);
    EXPECT_EQ(group.size(), mesh.shape().size(axes));
    EXPECT_EQ(group.rank(), mesh.coordinate(axes));
    std::int64_t sum = 0;
    for (int const member : mesh.shape().ranks_of_group(axes, rank)) sum += member;
    EXPECT_EQ(sum_of_ranks(group), sum);
  }
}

TEST_F(CommMesh, DataParallelRanksAreThoseWithOtherSamples) {
  Mesh const mesh(*world, shape_of(ranks, Axis::sequence, Axis::shard));
  EXPECT_EQ(mesh.data_size(), ranks > 1 ? ranks / 2 : 1);
  EXPECT_EQ(mesh.data_coordinate(), ranks > 1 ? rank % (ranks / 2) : 0);
  Mesh const all(*world);
  EXPECT_EQ(all.shape(), topology::data_parallel_mesh(ranks));
  EXPECT_EQ(all.data_size(), ranks);
  EXPECT_EQ(all.data_coordinate(), rank);
}

TEST_F(CommMesh, MakesACommunicatorOnceAndNoneForAllRanks) {
  Mesh mesh(*world, shape_of(ranks, Axis::replicate, Axis::shard));
  EXPECT_EQ(&mesh.world(), world.get());
  EXPECT_EQ(&mesh.group(topology::all_axes), world.get());
  EXPECT_EQ(&mesh.group({Axis::replicate, Axis::shard}), world.get());
  auto& shards = mesh.group(Axis::shard);
  EXPECT_EQ(&mesh.group(Axis::shard), &shards);
  EXPECT_EQ(&mesh.group({Axis::shard, Axis::sequence}), &shards) << "there is no such axis";
  EXPECT_EQ(&shards == world.get(), ranks == 1);
}

/// Operations of groups that overlap do not wait for each other in a circle.
TEST_F(CommMesh, GroupsAlongTwoAxesWorkSideBySide) {
  Mesh mesh(*world, shape_of(ranks, Axis::sequence, Axis::shard));
  auto &parts = mesh.group(Axis::sequence), &shards = mesh.group(Axis::shard);
  std::vector<float> a(1000, 1.0f), b(1000, 1.0f);
  auto const view = [](std::vector<float>& v) {
    return memory::TensorView(v.data(), Dtype::fp32, {static_cast<std::int64_t>(v.size())});
  };
  for (int i = 0; i < 3; ++i) {
    auto const first = parts.all_reduce(view(a), ReduceOp::sum, {});
    auto const second = shards.all_reduce(view(b), ReduceOp::sum, {});
    parts.wait(first);
    shards.wait(second);
  }
  auto const cubed = [](int n) { return static_cast<float>(n * n * n); };
  EXPECT_EQ(a, std::vector<float>(1000, cubed(parts.size())));
  EXPECT_EQ(b, std::vector<float>(1000, cubed(shards.size())));
}

TEST_F(CommMesh, RefusesAShapeOfAnotherNumberOfRanks) {
  EXPECT_THROW(Mesh(*world, topology::data_parallel_mesh(ranks + 1)), InternalError);
}

}  // namespace
}  // namespace tessera::comm::test
