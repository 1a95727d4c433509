#pragma once
/// Groups that Collectives::split() makes: members, results, order and errors, instantiated for
/// every transport, and the exchanges between the ranks of a group.
#include "tessera/comm/base/collectives.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>

#include "comm_test.hpp"
#include "fake_device.hpp"
#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm::test {
namespace {

struct Pattern {
  char const* name;
  std::function<int(int rank, int ranks)> color, key;
};

inline int by_rank(int rank, int) { return rank; }

inline std::vector<Pattern> patterns() {
  return {
      {"all", [](int, int) { return 0; }, by_rank},
      {"halves", [](int rank, int ranks) { return 2 * rank < ranks ? 7 : 3; }, by_rank},
      {"every other", [](int rank, int) { return rank % 2; }, [](int, int) { return 5; }},
      {"reversed", [](int, int) { return 0; }, [](int rank, int) { return -rank; }},
      {"single ranks", by_rank, by_rank},
      {"all but the last", [](int rank, int ranks) { return rank + 1 == ranks ? -1 : 0; }, by_rank},
  };
}

/// The members of this rank's group in its order; empty without a group.
inline std::vector<int> members_of(Pattern const& pattern, int rank, int ranks) {
  std::vector<int> members;
  int const color = pattern.color(rank, ranks);
  for (int q = 0; color >= 0 && q < ranks; ++q)
    if (pattern.color(q, ranks) == color) members.push_back(q);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return pattern.key(a, ranks) < pattern.key(b, ranks); });
  return members;
}

inline topology::RankGroup group_of(Pattern const& pattern, int rank, int ranks) {
  return {pattern.color(rank, ranks), pattern.key(rank, ranks),
          static_cast<int>(members_of(pattern, rank, ranks).size()), pattern.name};
}

class Groups : public ::testing::TestWithParam<std::tuple<Implementation, Dtype>> {
 protected:
  void SetUp() override {
    auto const which = std::get<0>(GetParam());
    bool const single = which == Implementation::loopback || which == Implementation::single_rank;
    if (single && tessera::test::session().info().world_size > 1) GTEST_SKIP() << "for one rank";
    on_device_ =
        which == Implementation::staged || which == Implementation::single_rank || by_nccl();
    if (on_device_ && !device()) device() = std::make_unique<tessera::test::FakeDevice>();
    world_ = make(which);
  }
  /// The flight recorder keeps events of the device, so it outlives the tests of a suite.
  static std::unique_ptr<tessera::test::FakeDevice>& device() {
    static std::unique_ptr<tessera::test::FakeDevice> device;
    return device;
  }
  static void TearDownTestSuite() {
    forget_events();
    device().reset();
  }
  bool by_nccl() const { return std::get<0>(GetParam()) == Implementation::nccl; }
  Dtype dtype() const { return std::get<1>(GetParam()); }
  /// The sum over the ranks of a group; NCCL's has the type on the wire.
  double sum(std::vector<int> const& members, std::int64_t i) const {
    return by_nccl() ? sum_on_wire(members, i, dtype()) : sum_by_node(members, i, dtype());
  }

  /// Calls @p check(group, members) on the members of each group of each pattern.
  void on_each_group(std::function<void(Collectives&, std::vector<int> const&)> const& check) {
    for (auto const& pattern : patterns()) {
      SCOPED_TRACE(pattern.name);
      auto const members = members_of(pattern, world_->rank(), world_->size());
      auto const group = world_->split(group_of(pattern, world_->rank(), world_->size()));
      ASSERT_EQ(group == nullptr, members.empty());
      if (group) check(*group, members);
    }
    EXPECT_TRUE(agree(*world_, true)) << "the group that was split remains usable";
  }
  Array input(Collectives& comm, std::int64_t numel, Placement placement = Placement::allocated) {
    Array a(comm, placement, dtype(), numel);
    a.fill([&](auto i) { return element(world_->rank(), i); });
    return a;
  }

  bool on_device_ = false;
  std::unique_ptr<Collectives> world_;
};

TEST_P(Groups, HaveTheRanksOfTheirColorInTheOrderOfTheKeys) {
  on_each_group([&](Collectives& group, auto const& members) {
    ASSERT_EQ(group.size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[static_cast<std::size_t>(group.rank())], world_->rank());
    EXPECT_EQ(broadcast_bytes(group, std::to_string(world_->rank()), group.size() - 1),
              std::to_string(members.back()));
  });
}

TEST_P(Groups, ReduceAndGatherAmongThemselves) {
  on_each_group([&](Collectives& group, auto const& members) {
    auto const sum_at = [&](std::int64_t i) { return sum(members, i); };
    for (std::int64_t const n : {1, 20'011}) {
      for (auto const placement : {Placement::allocated, Placement::ordinary}) {
        if (by_nccl() && placement == Placement::ordinary) continue;  // the host's
        StridedShards const shards{n, n + 3, 2};
        Array in = input(group, group.size() * shards.stride, placement);
        Array own(group, placement, Dtype::fp32, n);
        group.wait(
            group.reduce_scatter(in.view(), shards, own.view(), memory::WriteMode::overwrite, {}));
        for (std::int64_t i = 0; i < n; ++i)
          ASSERT_EQ(own[i], sum_at(group.rank() * shards.stride + 2 + i)) << i << " of " << n;
        group.wait(group.all_reduce(in.view(0, n), ReduceOp::sum, {}));
        for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(in[i], rounded(sum_at(i), dtype())) << i;
        Array shard = input(group, n, placement), all(group, placement, dtype(), n * group.size());
        group.wait(group.all_gather(shard.view(), all.view(), {n, n, 0}, {}));
        for (std::int64_t i = 0; i < all.numel(); ++i)
          ASSERT_EQ(all[i], element(members[static_cast<std::size_t>(i / n)], i % n)) << i;
      }
    }
  });
}

TEST_P(Groups, ExchangeEqualParts) {
  on_each_group([&](Collectives& group, auto const& members) {
    for (std::int64_t const n : {0, 1, 7, 150'001}) {
      for (auto const placement : {Placement::allocated, Placement::ordinary}) {
        if (by_nccl() && placement == Placement::ordinary) continue;  // the host's
        if (n > 7 && placement == Placement::ordinary) continue;
        Array in = input(group, n * group.size(), placement),
              out(group, placement, dtype(), n * group.size());
        group.wait(group.all_to_all(in.view(), out.view(), {}));
        for (std::int64_t i = 0; i < out.numel(); ++i)
          ASSERT_EQ(out[i],
                    element(members[static_cast<std::size_t>(i / n)], group.rank() * n + i % n))
              << i << " of " << n;
      }
    }
  });
}

/// Rank r sends r + 2q elements to rank q, from overlapping places; the last rank receives nothing.
TEST_P(Groups, ExchangePartsOfDifferentSizes) {
  on_each_group([&](Collectives& group, auto const& members) {
    int const ranks = group.size(), rank = group.rank();
    auto const count = [&](int from, int to) {
      return to + 1 == ranks && ranks > 1 ? 0 : std::int64_t{from} + 2 * to + 1;
    };
    Parts send, receive;
    std::int64_t at = 1;
    for (int q = 0; q < ranks; ++q) {
      send.counts.push_back(count(rank, q));
      send.offsets.push_back(q);
      receive.counts.push_back(count(q, rank));
      receive.offsets.push_back(at);
      at += receive.counts.back() + 1;
    }
    Array in = input(group, 4 * ranks), out(group, Placement::ordinary, dtype(), at);
    out.fill([](auto) { return 99.0; });
    group.wait(group.all_to_all(in.view(), send, out.view(), receive, {}));
    std::vector<double> expected(static_cast<std::size_t>(at), 99.0);
    for (std::size_t q = 0; q < members.size(); ++q)
      for (std::int64_t i = 0; i < receive.counts[q]; ++i)
        expected[static_cast<std::size_t>(receive.offsets[q] + i)] = element(members[q], rank + i);
    for (std::int64_t i = 0; i < at; ++i)
      ASSERT_EQ(out[i], expected[static_cast<std::size_t>(i)]) << i;
  });
}

/// Along a chain, so that no rank sends before the next receives; then collectives again.
TEST_P(Groups, SendAndReceive) {
  if (by_nccl()) GTEST_SKIP() << "the fake NCCL knows only launches of all ranks";
  on_each_group([&](Collectives& group, auto const& members) {
    for (std::int64_t const n : {1, 30'001}) {
      Array data = input(group, n);
      if (group.rank() > 0) group.wait(group.receive(data.view(), group.rank() - 1, {}));
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(data[i], element(members[0], i)) << i;
      if (group.rank() + 1 < group.size())
        group.wait(group.send(data.view(), group.rank() + 1, {}));
    }
    EXPECT_TRUE(agree(group, true)) << "sends do not count among the calls of all ranks";
    Array data = input(group, 1);
    EXPECT_THROW((void)group.send(data.view(), group.rank(), {}), InternalError);
    EXPECT_THROW((void)group.receive(data.view(), group.size(), {}), InternalError);
    EXPECT_TRUE(agree(group, true));
  });
}

TEST_P(Groups, OutliveWhatTheyWereSplitFromAndSplitAgain) {
  auto const pattern = patterns()[1];
  int const rank = world_->rank(), ranks = world_->size();
  auto half = world_->split(group_of(pattern, rank, ranks));
  auto const members = members_of(pattern, rank, ranks);
  auto const pair = half->split({half->rank() / 2, 0, 0, "pairs"});
  world_.reset();
  half.reset();
  auto const first = static_cast<std::size_t>(
      pair->rank() == 0 ? std::find(members.begin(), members.end(), rank) - members.begin()
                        : std::find(members.begin(), members.end(), rank) - members.begin() - 1);
  EXPECT_EQ(broadcast_bytes(*pair, std::to_string(rank), 0), std::to_string(members[first]));
}

/// Each group has its own order: ranks may call those of two groups in different orders.
TEST_P(Groups, RunIndependentlyOfEachOther) {
  if (on_device_) GTEST_SKIP() << "a device's operations have one order";
  auto const group = world_->split({0, world_->rank(), world_->size(), "all"});
  Array a(*world_, Placement::ordinary, dtype(), 100), b(*group, Placement::ordinary, dtype(), 100);
  a.fill([](auto) { return 1.0; });
  b.fill([](auto) { return 2.0; });
  std::vector<Pending> pending;
  auto const of_world = [&] { pending.push_back(world_->all_reduce(a.view(), ReduceOp::sum, {})); };
  auto const of_group = [&] { pending.push_back(group->all_reduce(b.view(), ReduceOp::sum, {})); };
  if (world_->rank() % 2 == 0)
    of_world(), of_group();
  else
    of_group(), of_world();
  world_->wait(pending[static_cast<std::size_t>(world_->rank() % 2)]);
  group->wait(pending[static_cast<std::size_t>(1 - world_->rank() % 2)]);
  EXPECT_EQ(a[99], world_->size());
  EXPECT_EQ(b[99], 2.0 * world_->size());
}

TEST_P(Groups, RefuseAnotherSizeThanDeclared) {
  EXPECT_THROW((void)world_->split({0, 0, world_->size() + 1, "too large"}), InternalError);
}

TEST_P(Groups, AppearWithTheirNameInTheFlightRecord) {
  auto const group = world_->split({0, 0, 0, "replica group 1"});
  Array data = input(*group, 3, Placement::ordinary);
  group->wait(group->all_reduce(data.view(), ReduceOp::sum, {}));
  auto const text = FlightRecorder::of_process().text();
  EXPECT_NE(text.find("replica group 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera::comm::test
