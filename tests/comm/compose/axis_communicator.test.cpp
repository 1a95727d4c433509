#include "tessera/comm/compose/mesh.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm_test.hpp"

namespace tessera::comm::test {
namespace {

using topology::Axis;

memory::TensorView view(std::vector<float>& values) {
  return {values.data(), Dtype::fp32, {std::ssize(values)}};
}

/// Half of the ranks along axis sequence, two along the outer one.
class AxisCommunicators : public ::testing::Test {
 protected:
  std::unique_ptr<Collectives> world = make_mpi(tessera::test::session(), 60s);
  int const inner = std::max(world->size() / 2, 1);
  Mesh mesh{*world,
            topology::Mesh({{Axis::replicate, world->size() / inner}, {Axis::sequence, inner}})};
  std::unique_ptr<memory::AxisCommunicator> sequence = make_axis_communicator(mesh, Axis::sequence);
  std::unique_ptr<memory::Queue> queue = memory::make_inline_queue("compute");
  int const n = sequence->size(), mine = sequence->rank();
  /// Value i that a rank of the axis has; ranks along the other axis have others.
  float value(int rank, int i) const {
    return static_cast<float>(100 * mesh.coordinate(Axis::replicate) + 10 * rank + i);
  }
};

TEST_F(AxisCommunicators, AreOfTheRanksAlongTheAxis) {
  EXPECT_EQ(n, inner);
  EXPECT_EQ(mine, world->rank() % inner);
}

TEST_F(AxisCommunicators, SumInPlace) {
  std::vector<float> data{value(mine, 0), value(mine, 1)}, expected(2);
  for (int q = 0; q < n; ++q)
    for (int i = 0; i < 2; ++i) expected[static_cast<std::size_t>(i)] += value(q, i);
  sequence->all_reduce(view(data), *queue);
  EXPECT_EQ(data, expected);
}

TEST_F(AxisCommunicators, GatherAndScatterSums) {
  std::vector<float> in{value(mine, 0), value(mine, 1)}, all(2 * static_cast<std::size_t>(n)),
      out(2);
  sequence->all_gather(view(in), view(all), *queue);
  std::vector<float> expected;
  for (int q = 0; q < n; ++q) expected.insert(expected.end(), {value(q, 0), value(q, 1)});
  EXPECT_EQ(all, expected);
  sequence->reduce_scatter(view(all), view(out), *queue);
  auto const ranks = static_cast<float>(n);
  EXPECT_EQ(out, (std::vector{ranks * in[0], ranks * in[1]})) << "all have the same values";
}

TEST_F(AxisCommunicators, ExchangeParts) {
  std::vector<float> in, out(static_cast<std::size_t>(n)), expected;
  for (int q = 0; q < n; ++q) {
    in.push_back(value(mine, q));
    expected.push_back(value(q, mine));
  }
  sequence->all_to_all(view(in), view(out), *queue);
  EXPECT_EQ(out, expected);
}

TEST_F(AxisCommunicators, RefuseOtherSizes) {
  std::vector<float> two(2), more(2 * static_cast<std::size_t>(n) + 1);
  EXPECT_THROW(sequence->all_gather(view(two), view(more), *queue), InternalError);
  EXPECT_THROW(sequence->reduce_scatter(view(more), view(two), *queue), InternalError);
}

}  // namespace
}  // namespace tessera::comm::test
