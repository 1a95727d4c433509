/// Operations in two levels of a thousand ranks in one process: each rank's calls on the groups
/// below are recorded without the other ranks, then compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/comm/compose/two_level.hpp"

namespace tessera::comm::test {
namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;

/// A call on a group, and what an all-to-all moves.
struct Call {
  std::string group;
  std::string operation;
  std::int64_t numel = 0;
  int root = -1;
  std::vector<std::int64_t> sent = {}, received = {};
  bool matches(Call const& other) const {
    return operation == other.operation && numel == other.numel && root == other.root;
  }
};
/// Ranks of the job, and how many.
struct Member {
  int rank, size;
};

/// One rank of a group without the others: records, and moves nothing.
class OneRank final : public Collectives {
 public:
  OneRank(std::vector<topology::NodeIndex> const& nodes, Member member, std::string group,
          std::vector<Call>& calls)
      : nodes_(nodes), member_(member), group_(std::move(group)), calls_(calls) {}
  int rank() const override { return member_.rank; }
  int size() const override { return member_.size; }
  /// Splits all ranks into the node of this rank, or the first ranks of all nodes.
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override {
    if (group.color < 0) return nullptr;
    std::set<int> seen;
    int before = 0;
    auto const own = nodes_[static_cast<std::size_t>(rank())];
    for (int q = 0; q < rank(); ++q) {
      auto const node = nodes_[static_cast<std::size_t>(q)];
      bool const is_first = seen.insert(static_cast<int>(node)).second;
      before += group.name == "node leaders" ? is_first : node == own;
    }
    return std::make_unique<OneRank>(nodes_, Member{before, group.size}, group.name, calls_);
  }
  std::shared_ptr<void> allocate(std::string const&, memory::Purpose, std::size_t bytes) override {
    return std::shared_ptr<void>(::operator new(bytes), [](void* p) { ::operator delete(p); });
  }
  Pending broadcast(TensorView data, int root, Event) override {
    return add({group_, "broadcast", data.numel(), root});
  }
  Pending all_reduce(TensorView data, ReduceOp, Event) override {
    return add({group_, "all_reduce", data.numel()});
  }
  Pending reduce(TensorView data, ReduceOp, int root, Event) override {
    return add({group_, "reduce", data.numel(), root});
  }
  Pending reduce_scatter(TensorView, StridedShards shards, TensorView, memory::WriteMode,
                         Event) override {
    return add({group_, "reduce_scatter", shards.count});
  }
  Pending all_gather(TensorView, StridedShards shards, Event) override {
    return add({group_, "all_gather", shards.count});
  }
  Pending all_gather(ConstTensorView, TensorView, StridedShards shards, Event) override {
    return add({group_, "all_gather", shards.count});
  }
  Pending scatter(ConstTensorView, TensorView out, int root, Event) override {
    return add({group_, "scatter", out.numel(), root});
  }
  Pending gather(ConstTensorView in, TensorView, int root, Event) override {
    return add({group_, "gather", in.numel(), root});
  }
  Pending all_to_all(ConstTensorView in, TensorView, Event) override {
    return add({group_, "all_to_all", in.numel()});
  }
  Pending all_to_all(ConstTensorView, Parts const& send, TensorView, Parts const& receive,
                     Event) override {
    return add({group_, "parts", 0, -1, send.counts, receive.counts});
  }
  Pending send(ConstTensorView, int, Event) override { return {}; }
  Pending receive(TensorView, int, Event) override { return {}; }
  void wait(Pending const&) override {}
  void barrier() override { (void)add({group_, "barrier"}); }

 private:
  Pending add(Call call) {
    calls_.push_back(std::move(call));
    return {};
  }
  std::vector<topology::NodeIndex> const& nodes_;
  Member member_;
  std::string group_;
  std::vector<Call>& calls_;
};

using Schedule = std::vector<std::vector<Call>>;  ///< calls of all ranks

/// The calls of a step: gradients, norm, weights, broadcasts. Several chunks.
std::vector<Call> calls_of(std::vector<topology::NodeIndex> const& nodes, int rank,
                           std::vector<float>& data) {
  std::vector<Call> calls;
  int const ranks = static_cast<int>(nodes.size());
  auto const two =
      make_two_level(std::make_unique<OneRank>(nodes, Member{rank, ranks}, std::string(), calls),
                     nodes, {Levels::two, {}});
  std::int64_t const n = static_cast<std::int64_t>(data.size()) / ranks;
  TensorView const view(data.data(), Dtype::fp32, {n * ranks}), own = view.rows(rank * n, n);
  two->wait(two->reduce_scatter(view, {n, n, 0}, own, memory::WriteMode::overwrite, {}));
  two->wait(two->all_reduce(view.rows(0, ranks + 1), ReduceOp::sum, {}));
  two->wait(two->all_gather(view, {n, n, 0}, {}));
  for (int const root : {0, 1, ranks / 2, ranks - 1}) two->wait(two->broadcast(view, root, {}));
  return calls;
}

/// Lets every call end that is next on all ranks of its group; returns what never ends.
std::size_t stuck(Schedule const& schedule, std::map<std::string, std::vector<int>> const& groups) {
  std::vector<std::size_t> next(schedule.size());
  for (bool moves = true; moves;) {
    moves = false;
    for (auto const& [name, members] : groups) {
      bool const ready = std::ranges::all_of(members, [&, group = name](int q) {
        auto const rank = static_cast<std::size_t>(q);
        return next[rank] < schedule[rank].size() && schedule[rank][next[rank]].group == group;
      });
      if (!ready) continue;
      moves = true;
      auto const& first = schedule[static_cast<std::size_t>(members[0])]
                                  [next[static_cast<std::size_t>(members[0])]];
      for (int const q : members) {
        auto const rank = static_cast<std::size_t>(q);
        auto const& call = schedule[rank][next[rank]++];
        EXPECT_TRUE(call.matches(first)) << "rank " << q << ", " << name << ": " << call.operation;
        for (std::size_t p = 0; p < call.sent.size(); ++p) {
          // Calls of all ranks, in order
          auto const& peer = schedule[p][next[p] - (p <= rank ? 1 : 0)];
          if (call.sent[p] != peer.received.at(rank)) ADD_FAILURE() << rank << " to " << p;
        }
      }
    }
  }
  std::size_t left = 0;
  for (std::size_t q = 0; q < schedule.size(); ++q) left += schedule[q].size() - next[q];
  return left;
}

class TwoLevelSchedule : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(TwoLevelSchedule, OfAThousandRanksMatchesAndEnds) {
  std::vector<topology::NodeIndex> nodes;
  std::map<std::string, std::vector<int>> groups;
  auto const& sizes = GetParam();
  for (int node = 0; static_cast<int>(nodes.size()) < 1000; ++node) {
    int const size = std::min(sizes[static_cast<std::size_t>(node) % sizes.size()],
                              1000 - static_cast<int>(nodes.size()));
    groups["node leaders"].push_back(static_cast<int>(nodes.size()));
    for (int i = 0; i < size; ++i) {
      groups[concat("node ", node)].push_back(static_cast<int>(nodes.size()));
      groups[""].push_back(static_cast<int>(nodes.size()));
      nodes.push_back(topology::NodeIndex(node));
    }
  }
  std::vector<float> data(1000 * 17'000);
  Schedule schedule;
  for (int rank = 0; rank < 1000; ++rank) schedule.push_back(calls_of(nodes, rank, data));
  std::size_t exchanges = 0;
  for (auto const& call : schedule[0]) exchanges += call.operation == "parts";
  EXPECT_GT(exchanges, 4u) << "several chunks";
  EXPECT_EQ(stuck(schedule, groups), 0u);
}
INSTANTIATE_TEST_SUITE_P(Nodes, TwoLevelSchedule,
                         ::testing::Values(std::vector<int>{8}, std::vector<int>{3, 5, 8},
                                           std::vector<int>{64, 1}));

/// The check itself: ranks that disagree, and a circle of calls.
TEST(TwoLevelScheduleCheck, SeesAnOrderThatNeverEnds) {
  Call const a{"a", "barrier"}, b{"b", "barrier"};
  std::map<std::string, std::vector<int>> const groups{{"a", {0, 1}}, {"b", {0, 1}}};
  EXPECT_EQ(stuck({{a, b}, {a, b}}, groups), 0u);
  EXPECT_EQ(stuck({{a, b}, {b, a}}, groups), 4u);
  EXPECT_EQ(stuck({{a, b}, {a}}, groups), 1u);
}

}  // namespace
}  // namespace tessera::comm::test
