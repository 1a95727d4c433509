/// Two levels against the flat collectives of the same ranks, bit for bit; the bytes of each level
/// against theory. The nodes are simulated (TESSERA_SIMULATED_NODES).
#include "tessera/comm/compose/two_level.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "comm_test.hpp"
#include "recording_collectives.hpp"
#include "tessera/comm/base/planning_collectives.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm::test {
namespace {

std::vector<topology::NodeIndex> const& nodes() { return tessera::test::session().nodes(); }
int node_count() { return tessera::test::session().info().node_count; }
int ranks_of(int node) {
  return static_cast<int>(std::count(nodes().begin(), nodes().end(), topology::NodeIndex(node)));
}
std::unique_ptr<Collectives> flat() { return make_mpi(tessera::test::session(), 60s); }

/// Sums of these round in every dtype, and differently in another order.
double uneven(int rank, std::int64_t i) {
  return (1.0 + static_cast<double>((i * 7 + rank * 13) % 1000) / 999.0) * (rank % 2 == 0 ? 1 : -3);
}

class TwoLevel : public ::testing::TestWithParam<Dtype> {
 protected:
  Array input(Collectives& comm, std::int64_t numel, Placement placement = Placement::allocated) {
    Array a(comm, placement, GetParam(), numel);
    a.fill([&](auto i) { return uneven(comm.rank(), i); });
    return a;
  }
  static void expect_same(memory::TensorView a, memory::TensorView b, char const* what,
                          std::int64_t n) {
    if (a.bytes() == 0 && b.bytes() == 0) return;
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << what << " of " << n;
  }
  /// The last is moved in several chunks.
  std::vector<std::int64_t> const sizes_{0, 1, 7, 1003, 1'200'003};
  std::unique_ptr<Collectives> flat_ = flat();
  std::unique_ptr<Collectives> two_ = make_two_level(flat(), nodes(), {Levels::two, {}});
};

TEST_P(TwoLevel, ReduceScatter) {
  for (auto const n : sizes_) {
    for (auto const mode : {memory::WriteMode::overwrite, memory::WriteMode::add}) {
      if (n > 10'000 && mode == memory::WriteMode::overwrite) continue;
      StridedShards const shards{n, n + 5, 3};
      Array in = input(*two_, two_->size() * shards.stride);
      Array expected(*flat_, Placement::ordinary, Dtype::fp32, n),
          result(*two_, Placement::ordinary, Dtype::fp32, n);
      for (auto* const out : {&expected, &result}) out->fill([](auto i) { return 0.1 * (i % 7); });
      flat_->wait(flat_->reduce_scatter(in.view(), shards, expected.view(), mode, {}));
      two_->wait(two_->reduce_scatter(in.view(), shards, result.view(), mode, {}));
      expect_same(expected.view(), result.view(), "reduce_scatter", n);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(in.numel(), 1000); ++i)
        ASSERT_EQ(in[i], rounded(uneven(two_->rank(), i), GetParam())) << "the input was changed";
    }
  }
}

TEST_P(TwoLevel, ReduceScatterIntoItsOwnRegion) {
  for (auto const n : sizes_) {
    Array in = input(*two_, n * two_->size());
    Array expected(*flat_, Placement::ordinary, GetParam(), n);
    flat_->wait(flat_->reduce_scatter(in.view(), {n, n, 0}, expected.view(),
                                      memory::WriteMode::overwrite, {}));
    auto const own = in.view(two_->rank() * n, n);
    two_->wait(two_->reduce_scatter(in.view(), {n, n, 0}, own, memory::WriteMode::overwrite, {}));
    expect_same(expected.view(), own, "reduce_scatter in place", n);
  }
}

TEST_P(TwoLevel, AllGather) {
  for (auto const n : sizes_) {
    StridedShards const shards{n, n + 4, 1};
    Array shard = input(*two_, n + 4, Placement::ordinary);
    Array expected = input(*flat_, two_->size() * shards.stride),
          result = input(*two_, two_->size() * shards.stride);
    flat_->wait(flat_->all_gather(shard.view(), expected.view(), shards, {}));
    two_->wait(two_->all_gather(shard.view(), result.view(), shards, {}));
    expect_same(expected.view(), result.view(), "all_gather from a shard", n);
    Array in_place = input(*two_, two_->size() * shards.stride);
    Array other = input(*flat_, two_->size() * shards.stride);
    flat_->wait(flat_->all_gather(other.view(), shards, {}));
    two_->wait(two_->all_gather(in_place.view(), shards, {}));
    expect_same(other.view(), in_place.view(), "all_gather in place", n);
  }
}

TEST_P(TwoLevel, AllReduce) {
  for (auto const op : {ReduceOp::sum, ReduceOp::max}) {
    for (auto const n : sizes_) {
      if (op == ReduceOp::max && n > 10'000) continue;
      Array expected = input(*flat_, n), result = input(*two_, n, Placement::ordinary);
      flat_->wait(flat_->all_reduce(expected.view(), op, {}));
      two_->wait(two_->all_reduce(result.view(), op, {}));
      expect_same(expected.view(), result.view(), "all_reduce", n);
    }
  }
}

TEST_P(TwoLevel, BroadcastFromEveryRoot) {
  for (int root = 0; root < two_->size(); ++root) {
    for (std::int64_t const n : {0, 1, 100'003}) {
      Array data = input(*two_, n);
      two_->wait(two_->broadcast(data.view(), root, {}));
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(data[i], rounded(uneven(root, i), GetParam())) << i << " of root " << root;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Host, TwoLevel, ::testing::Values(Dtype::fp32, Dtype::bf16),
                         [](auto const& info) {
                           return std::string(tessera::name_of(info.param));
                         });

TEST(TwoLevelCollectives, PassOnTheOtherOperations) {
  auto const two = make_two_level(flat(), nodes(), {Levels::two, {}});
  int const ranks = two->size(), rank = two->rank();
  Array all(*two, Placement::ordinary, Dtype::fp32, ranks),
      one(*two, Placement::ordinary, Dtype::fp32, 1);
  one.set(0, rank + 1);
  two->wait(two->gather(one.view(), all.view(), 0, {}));
  if (rank == 0) {
    for (int q = 0; q < ranks; ++q) EXPECT_EQ(all[q], q + 1);
  }
  two->wait(two->scatter(all.view(), one.view(), 0, {}));
  EXPECT_EQ(one[0], rank + 1);
  two->wait(two->reduce(one.view(), ReduceOp::sum, 0, {}));
  EXPECT_EQ(one[0], rank == 0 ? ranks * (ranks + 1) / 2 : rank + 1);
  Array to(*two, Placement::ordinary, Dtype::fp32, ranks);
  all.fill([&](auto i) { return 10 * rank + i; });
  two->wait(two->all_to_all(all.view(), to.view(), {}));
  for (int q = 0; q < ranks; ++q) EXPECT_EQ(to[q], 10 * q + rank);
  EXPECT_THROW((void)two->send(one.view(), rank, {}), InternalError);
  two->barrier();
}

TEST(TwoLevelCollectives, GroupsThatSpanNodesHaveTwoLevelsToo) {
  auto recording = make_recording(flat());
  auto const* const records = recording.get();
  auto const two = make_two_level(std::move(recording), nodes(), {Levels::two, {}});
  auto const group = two->split({0, -two->rank(), two->size(), "reversed"});
  Array data(*group, Placement::allocated, Dtype::fp32, 1000 * group->size());
  data.fill([&](auto) { return 1.0 + two->rank(); });
  group->wait(group->all_reduce(data.view(), ReduceOp::sum, {}));
  EXPECT_EQ(data[999], two->size() * (two->size() + 1) / 2);
  bool by_node = false;
  for (auto const& record : records->records())
    by_node = by_node || (record.operation == "reduce_scatter" && record.group.starts_with("node"));
  EXPECT_EQ(by_node, node_count() > 1 && node_count() < two->size());
}

/// Per shard one message to its owner from each other node, and one from the owner to each of them;
/// summed over the ranks of this rank's node.
class TwoLevelBytes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (node_count() == 1 || node_count() == two_->size()) GTEST_SKIP() << "one level";
    records_->clear();
  }
  /// Sent by the ranks of this node to those of other nodes in the group of all ranks.
  std::size_t across() {
    std::int64_t sent = 0;
    for (auto const& record : records_->records())
      for (std::size_t q = 0; record.group.empty() && q < record.bytes_to_peer.size(); ++q)
        if (nodes()[q] != tessera::test::session().info().node)
          sent += static_cast<std::int64_t>(record.bytes_to_peer[q]);
    auto const node = flat_->split(topology::node_group(nodes(), flat_->rank()));
    return static_cast<std::size_t>(all_reduce_value(*node, sent, ReduceOp::sum));
  }
  static std::size_t to_size(int n) { return static_cast<std::size_t>(n); }

  std::unique_ptr<Collectives> flat_ = flat();
  std::unique_ptr<RecordingCollectives> recording_ = make_recording(flat());
  RecordingCollectives* records_ = recording_.get();
  std::unique_ptr<Collectives> two_ =
      make_two_level(std::move(recording_), nodes(), {Levels::two, {}});
  std::size_t ranks_ = to_size(two_->size()), count_ = to_size(node_count()),
              own_ = to_size(ranks_of(static_cast<int>(tessera::test::session().info().node)));
  Array data_{*two_, Placement::allocated, Dtype::bf16, 100 * two_->size()};
};

TEST_F(TwoLevelBytes, OfAReduceScatterAreOneMessagePerNodeAndShard) {
  two_->wait(two_->reduce_scatter(data_.view(), {100, 100, 0}, data_.view(100 * two_->rank(), 100),
                                  memory::WriteMode::overwrite, {}));
  EXPECT_EQ(across(), (ranks_ - own_) * 200);
  std::size_t const windows = (ranks_ + own_ - 1) / own_;
  EXPECT_EQ(records_->bytes_sent(topology::node_group(nodes(), two_->rank()).name),
            windows * (own_ - 1) * 200);
}

TEST_F(TwoLevelBytes, OfAnAllGatherAreOneMessagePerNodeAndShard) {
  two_->wait(two_->all_gather(data_.view(), {100, 100, 0}, {}));
  EXPECT_EQ(across(), own_ * (count_ - 1) * 200);
}

TEST_F(TwoLevelBytes, OfAnAllReduceAreThoseOfBoth) {
  two_->wait(two_->all_reduce(data_.view(), ReduceOp::sum, {}));
  EXPECT_EQ(across(), (ranks_ - own_) * 200 + own_ * (count_ - 1) * 200);
}

TEST_F(TwoLevelBytes, OfABroadcastAreOneMessagePerOtherNode) {
  two_->wait(two_->broadcast(data_.view(), two_->size() - 1, {}));
  bool const sends = two_->rank() == static_cast<int>(ranks_) - ranks_of(node_count() - 1);
  EXPECT_EQ(records_->bytes_sent("node leaders"), sends ? (count_ - 1) * ranks_ * 200 : 0);
}

/// Ranks of a node need not be consecutive.
TEST(TwoLevelCollectives, WorkWithAnyOrderOfTheRanks) {
  int const ranks = tessera::test::session().info().world_size;
  std::vector<topology::NodeIndex> alternate;
  for (int q = 0; q < ranks; ++q) alternate.push_back(topology::NodeIndex(q % 2));
  auto const two = make_two_level(flat(), alternate, {Levels::two, {}});
  std::int64_t const n = 1001;
  Array in(*two, Placement::allocated, Dtype::fp32, n * ranks),
      out(*two, Placement::ordinary, Dtype::fp32, n);
  in.fill([&](auto i) { return element(two->rank(), i); });
  two->wait(
      two->reduce_scatter(in.view(), {n, n, 0}, out.view(), memory::WriteMode::overwrite, {}));
  for (std::int64_t i = 0; i < n; ++i)
    ASSERT_EQ(out[i], serial_sum(ranks, two->rank() * n + i, Dtype::fp32)) << i;
  two->wait(two->all_gather(out.view(), in.view(), {n, n, 0}, {}));
  for (std::int64_t i = 0; i < in.numel(); ++i)
    ASSERT_EQ(in[i], serial_sum(ranks, i, Dtype::fp32)) << i;
}

TEST(TwoLevelCollectives, ShareFailuresToAllocate) {
  auto const two = make_two_level(flat(), nodes(), {Levels::two, {}});
  EXPECT_THROW((void)two->allocate("too much", memory::Purpose::weights, std::size_t{1} << 46),
               OutOfMemoryError);
  EXPECT_TRUE(agree(*two, true));
}

/// Rank 0 of a job of 125 nodes of 8 ranks, without the others: what it would send.
TEST(TwoLevelCollectives, AreRehearsedForAThousandRanks) {
  std::vector<topology::NodeIndex> of_ranks;
  for (int q = 0; q < 1000; ++q) of_ranks.push_back(topology::NodeIndex(q / 8));
  auto recording = make_recording(make_planning_collectives(1000, memory::MemorySpace::host));
  auto& records = *recording;
  auto const two = make_two_level(std::move(recording), of_ranks, {Levels::two, {}});
  std::vector<float> data(10 * 1000);
  memory::TensorView const view(data.data(), Dtype::fp32, {10'000});
  StridedShards const shards{10, 10, 0};
  two->wait(two->reduce_scatter(view, shards, view.rows(0, 10), memory::WriteMode::overwrite, {}));
  EXPECT_EQ(records.bytes_sent(""), 1000u / 8 * 40 - 40) << "a message to each other node";
  EXPECT_EQ(records.bytes_sent("node 0"), 125u * 7 * 40);
  records.clear();
  two->wait(two->all_gather(view, shards, {}));
  EXPECT_EQ(records.bytes_sent(""), 124u * 40);
  EXPECT_EQ(records.bytes_sent("node 0"), 125u * 7 * 40);
}

TEST(PrefersTwoLevels, WhereTheNetworkIsWhatLimits) {
  Links const cluster{{5e-6, 40e9}, {3e-6, 12e9}};
  EXPECT_FALSE(prefers_two_levels(cluster, 2, 2, 1024)) << "latency of the node's phases";
  EXPECT_TRUE(prefers_two_levels(cluster, 2, 8, std::size_t{256} << 20));
  EXPECT_TRUE(prefers_two_levels(cluster, 64, 8, std::size_t{64} << 20));
  Links const slow_nodes{{5e-6, 1e9}, {3e-6, 50e9}};
  EXPECT_FALSE(prefers_two_levels(slow_nodes, 2, 2, std::size_t{256} << 20));
}

TEST(MakeTwoLevel, LeavesOneLevelAsItIs) {
  auto world = make_recording(flat());
  auto const* const before = world.get();
  auto const after = make_two_level(std::move(world), nodes(), {Levels::flat, {}});
  EXPECT_EQ(after.get(), before);
  std::vector<topology::NodeIndex> const one_node(nodes().size(), topology::NodeIndex(0));
  auto again = make_recording(flat());
  auto const* const as_before = again.get();
  EXPECT_EQ(make_two_level(std::move(again), one_node, {Levels::two, {}}).get(), as_before);
}

}  // namespace
}  // namespace tessera::comm::test
