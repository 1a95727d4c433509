/// The bytes of each level, against those of the recorded operations and, in two levels, against
/// docs/explanation/collectives.md.
#include "tessera/comm/base/traffic.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "comm_test.hpp"
#include "tessera/comm/compose/two_level.hpp"

namespace tessera::comm::test {
namespace {

topology::NodeIndex own_node() { return tessera::test::session().info().node; }
std::vector<topology::NodeIndex> const& nodes() { return tessera::test::session().nodes(); }

/// What one operation of all ranks sends to each level.
Traffic of_record(CollectiveRecord const& record) {
  Traffic out;
  for (std::size_t q = 0; q < record.bytes_to_peer.size(); ++q)
    (nodes()[q] == own_node() ? out.intra_node : out.inter_node) += record.bytes_to_peer[q];
  return out;
}
Traffic recorded(RecordingCollectives const& comm) { return of_record(comm.records().back()); }

/// What an operation in two levels is made of: of all ranks, of a node, of the nodes' first ranks.
Traffic recorded_parts(RecordingCollectives const& comm) {
  Traffic out;
  for (auto const& record : comm.records()) {
    auto const bytes = static_cast<std::uint64_t>(record.bytes_sent);
    auto const part = record.group.empty()             ? of_record(record)
                      : record.group == "node leaders" ? Traffic{0, bytes, 0}
                                                       : Traffic{bytes, 0, 0};
    out.intra_node += part.intra_node;
    out.inter_node += part.inter_node;
  }
  return out;
}

/// What @p operation adds.
template <class F>
Traffic sent_by(F&& operation) {
  auto const before = traffic_of_process();
  operation();
  return traffic_of_process() - before;
}

TEST(Traffic, IsThatOfTheRecordedOperations) {
  auto const comm = make_recording(make_mpi(tessera::test::session(), 60s));
  std::int64_t const ranks = comm->size(), shard = 60;
  Array data{*comm, Placement::ordinary, Dtype::bf16, ranks * shard};
  Array part{*comm, Placement::ordinary, Dtype::bf16, shard};
  Array all{*comm, Placement::ordinary, Dtype::bf16, ranks * shard};
  StridedShards const blocks{shard, shard, 0};
  int const last = comm->size() - 1;
  std::vector<std::function<Pending()>> const operations{
      [&] { return comm->all_reduce(data.view(0, ranks * shard - 1), ReduceOp::sum, {}); },
      [&] {
        return comm->reduce_scatter(data.view(), blocks, part.view(), memory::WriteMode::overwrite,
                                    {});
      },
      [&] { return comm->all_gather(data.view(), blocks, {}); },
      [&] { return comm->broadcast(data.view(), last, {}); },
      [&] { return comm->reduce(data.view(), ReduceOp::sum, last, {}); },
      [&] { return comm->scatter(data.view(), part.view(), last, {}); },
      [&] { return comm->gather(part.view(), data.view(), last, {}); },
      [&] { return comm->all_to_all(data.view(), all.view(), {}); },
  };
  for (std::size_t i = 0; i < operations.size(); ++i) {
    auto const sent = sent_by([&] { comm->wait(operations[i]()); });
    EXPECT_EQ(sent, recorded(*comm)) << "operation " << i;
  }
  EXPECT_EQ(sent_by([&] { comm->barrier(); }), Traffic{});
}

TEST(Traffic, OfPartsIsWhatEachRankGets) {
  auto const comm = make_recording(make_mpi(tessera::test::session(), 60s));
  auto const ranks = static_cast<std::size_t>(comm->size());
  Parts send, receive;
  for (std::size_t q = 0; q < ranks; ++q) {  // rank r sends q + 1 elements to rank q
    send.counts.push_back(static_cast<std::int64_t>(q) + 1);
    send.offsets.push_back(0);
    receive.counts.push_back(comm->rank() + 1);
    receive.offsets.push_back(static_cast<std::int64_t>(q) * (comm->rank() + 1));
  }
  Array in{*comm, Placement::ordinary, Dtype::fp32, comm->size()};
  Array out{*comm, Placement::ordinary, Dtype::fp32, comm->size() * (comm->rank() + 1)};
  auto const sent =
      sent_by([&] { comm->wait(comm->all_to_all(in.view(), send, out.view(), receive, {})); });
  EXPECT_EQ(sent, recorded(*comm));
}

/// One message per shard and other node, and inside the node the rest of what all ranks exchange.
TEST(Traffic, InTwoLevelsCrossesTheNetworkOnce) {
  auto const& session = tessera::test::session();
  int const count = session.info().node_count;
  if (count < 2 || session.info().world_size % count != 0) GTEST_SKIP() << "for equal nodes";
  auto const comm = make_two_level(make_mpi(session, 60s), nodes(), {Levels::two, {}});
  auto const ranks = static_cast<std::uint64_t>(comm->size());
  auto const others = static_cast<std::uint64_t>(count) - 1;
  std::int64_t const shard = 1'000;
  Array data{*comm, Placement::allocated, Dtype::fp32, comm->size() * shard};
  Array part{*comm, Placement::allocated, Dtype::fp32, shard};
  StridedShards const blocks{shard, shard, 0};
  Traffic const expected{(ranks - 1 - others) * 4'000, others * 4'000, 0};
  for (int repeat = 0; repeat < 2; ++repeat) {  // the first one allocates
    auto const reduced = sent_by([&] {
      comm->wait(
          comm->reduce_scatter(data.view(), blocks, part.view(), memory::WriteMode::overwrite, {}));
    });
    auto const gathered = sent_by([&] { comm->wait(comm->all_gather(data.view(), blocks, {})); });
    EXPECT_EQ(reduced, expected);
    EXPECT_EQ(gathered, expected);
  }
}

/// Equal and unequal nodes, several chunks, remainders, all roots: the call counts what the
/// operations of the node and of all ranks send when they run.
TEST(Traffic, InTwoLevelsIsCountedInTheCall) {
  auto const& session = tessera::test::session();
  int const ranks = session.info().world_size;
  if (session.info().node_count < 2 || session.info().node_count == ranks)
    GTEST_SKIP() << "for nodes with several ranks";
  auto recording = make_recording(make_mpi(session, 60s));
  auto& inner = *recording;
  auto const comm = make_two_level(std::move(recording), nodes(), {Levels::two, {}});
  std::int64_t const shard = 2'000'003, numel = ranks * shard + 1;
  Array data{*comm, Placement::ordinary, Dtype::fp32, numel};
  Array part{*comm, Placement::ordinary, Dtype::fp32, shard};
  StridedShards const blocks{shard, shard, 0};
  std::vector<std::function<Pending()>> operations{
      [&] { return comm->all_reduce(data.view(), ReduceOp::sum, {}); },
      [&] { return comm->all_reduce(data.view(), ReduceOp::max, {}); },
      [&] { return comm->all_reduce(data.view(0, 1), ReduceOp::sum, {}); },
      [&] {
        return comm->reduce_scatter(data.view(), blocks, part.view(), memory::WriteMode::overwrite,
                                    {});
      },
      [&] { return comm->all_gather(data.view(), blocks, {}); },
      [&] { return comm->gather(part.view(), data.view(0, ranks * shard), 0, {}); },
  };
  for (int root = 0; root < ranks; ++root)
    operations.push_back([&, root] { return comm->broadcast(data.view(), root, {}); });
  comm->wait(operations[0]());  // allocates
  for (std::size_t i = 0; i < operations.size(); ++i) {
    comm->barrier();
    inner.clear();
    Pending pending;
    auto const called = sent_by([&] { pending = operations[i](); });
    auto const ran = sent_by([&] { comm->wait(pending); });
    EXPECT_EQ(called, recorded_parts(inner)) << "operation " << i;
    EXPECT_EQ(ran, Traffic{}) << "operation " << i;
  }
}

TEST(Traffic, CountsTheBytesOfALink) {
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("broadcast", 4), 1.0);
}

}  // namespace
}  // namespace tessera::comm::test
