/// Every way in which the ranks of a node exchange data, forced by limits that no processor has,
/// and with the limits of each vendor. Oracle: serial formulas.
#include "host/shm_transport.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/queued_collectives.hpp"
#include "comm_test.hpp"

namespace tessera::comm::test {
namespace {

using detail::PathLimits;

constexpr std::size_t unlimited = std::numeric_limits<std::int64_t>::max();

/// mixed: odd ranks in memory of allocate(), even ones in ordinary memory.
enum class Memory { shared, ordinary, mixed };

struct Case {
  char const* name;
  PathLimits limits;
};

/// Small pieces: every loop over tiles and chunks has several rounds.
constexpr PathLimits one_copy{.copied_tile = 4096, .reduced_chunk = 10'000};
constexpr PathLimits two_copies{.staged = unlimited,
                                .staged_reduction = unlimited,
                                .staged_shared_reduction = unlimited,
                                .read_broadcast = unlimited,
                                .copied_tile = 4096,
                                .reduced_chunk = 10'000};
constexpr PathLimits one_phase{.small = detail::NodeControl::half_bytes,
                               .small_reduction = detail::NodeControl::half_bytes,
                               .staged = unlimited,
                               .staged_reduction = unlimited,
                               .read_broadcast = unlimited,
                               .copied_tile = 4096,
                               .reduced_chunk = unlimited};

class SharedMemoryPaths : public ::testing::TestWithParam<std::tuple<Case, Memory>> {
 protected:
  void SetUp() override {
    auto const& session = tessera::test::session();
    auto comm = std::make_unique<detail::MpiComm>(session.world());
    auto members = detail::exchange_members(*comm, session);
    auto transport =
        detail::ShmTransport::try_make(comm, members, session, 60s, std::get<0>(GetParam()).limits);
    ASSERT_TRUE(transport) << "the ranks are not on one node";
    comm_ = std::make_unique<detail::QueuedCollectives>(std::move(transport), 60s);
    rank_ = comm_->rank();
    ranks_ = comm_->size();
  }
  Array array(std::int64_t numel) {
    kept_.emplace_back(*comm_, Placement::allocated, Dtype::fp32, numel);
    auto const memory = std::get<1>(GetParam());
    if (memory == Memory::shared || (memory == Memory::mixed && rank_ % 2 == 1))
      return kept_.back();
    return Array(*comm_, Placement::ordinary, Dtype::fp32, numel);
  }
  Array input(std::int64_t numel) {
    Array a = array(numel);
    a.fill([&](auto i) { return element(rank_, i); });
    return a;
  }
  /// The last: more than a staging half of fp32.
  static constexpr std::int64_t numels[] = {1, 1000, 30'011, 300'001};

  std::unique_ptr<Collectives> comm_;
  std::vector<Array> kept_;  ///< memory of allocate() lives equally long on every rank
  int rank_ = 0, ranks_ = 1;
};

TEST_P(SharedMemoryPaths, BroadcastGivesTheRootsData) {
  for (int root = 0; root < ranks_; ++root)
    for (auto const n : numels) {
      Array data = input(n + 1);
      data.set(n, -7);
      comm_->wait(comm_->broadcast(data.view(0, n), root, {}));
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(data[i], element(root, i)) << i << " of " << n;
      ASSERT_EQ(data[n], -7) << "written past the end";
    }
}

TEST_P(SharedMemoryPaths, AllReduceSumsAgainAndAgain) {
  for (auto const n : numels) {
    Array data = input(n);
    for (int round = 0; round < 3; ++round) {
      comm_->wait(comm_->all_reduce(data.view(), ReduceOp::sum, {}));
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(data[i], serial_sum(ranks_, i, Dtype::fp32)) << i << " of " << n;
      data.fill(
          [&](auto i) { return element(rank_, i); });  // immediately, as the peers may still read
    }
  }
}

TEST_P(SharedMemoryPaths, ReduceScatterAddsToTheResult) {
  for (auto const n : numels) {
    StridedShards const shards{n, n + 3, 2};
    Array in = input(ranks_ * shards.stride), out = array(n);
    out.fill([](auto i) { return static_cast<double>(i % 5); });
    comm_->wait(comm_->reduce_scatter(in.view(), shards, out.view(), memory::WriteMode::add, {}));
    in.fill([](auto) { return 1e30; });
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(out[i], serial_sum(ranks_, rank_ * shards.stride + 2 + i, Dtype::fp32) +
                            static_cast<double>(i % 5))
          << i << " of " << n;
  }
}

TEST_P(SharedMemoryPaths, AllGatherLeavesWhatIsBetweenShards) {
  for (auto const n : numels) {
    StridedShards const shards{n, n + 4, 3};
    Array shard = input(n + 4), whole = array(ranks_ * shards.stride);
    whole.fill([](auto) { return 99; });
    comm_->wait(comm_->all_gather(shard.view(), whole.view(), shards, {}));
    shard.fill([](auto) { return 1e30; });
    for (std::int64_t i = 0; i < whole.numel(); ++i) {
      std::int64_t const at = i % shards.stride;
      bool const inside = at >= 3 && at < 3 + n;
      ASSERT_EQ(whole[i], inside ? element(static_cast<int>(i / shards.stride), at) : 99.0) << i;
    }
  }
}

TEST_P(SharedMemoryPaths, RootedOperationsAndAllToAll) {
  for (auto const n : numels) {
    int const root = ranks_ - 1;
    Array sum = input(n), whole = array(n * ranks_), part = array(n), turned = array(n * ranks_);
    comm_->wait(comm_->reduce(sum.view(), ReduceOp::sum, root, {}));
    whole.fill([&](auto i) { return element(rank_, i); });
    comm_->wait(comm_->all_to_all(whole.view(), turned.view(), {}));
    comm_->wait(comm_->scatter(whole.view(), part.view(), root, {}));
    comm_->wait(comm_->gather(part.view(), whole.view(), root, {}));
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(sum[i], rank_ == root ? serial_sum(ranks_, i, Dtype::fp32) : element(rank_, i));
      ASSERT_EQ(part[i], element(root, rank_ * n + i)) << i << " of " << n;
      for (int q = 0; q < ranks_; ++q)
        ASSERT_EQ(turned[q * n + i], element(q, rank_ * n + i)) << i << " of rank " << q;
    }
    for (std::int64_t i = 0; rank_ == root && i < whole.numel(); ++i)
      ASSERT_EQ(whole[i], element(root, i)) << i;
  }
}

std::string name_of(::testing::TestParamInfo<std::tuple<Case, Memory>> const& info) {
  char const* const memories[] = {"Shared", "Ordinary", "Mixed"};
  return std::string(std::get<0>(info.param).name) + "_" +
         memories[static_cast<int>(std::get<1>(info.param))];
}
INSTANTIATE_TEST_SUITE_P(
    All, SharedMemoryPaths,
    ::testing::Combine(
        ::testing::Values(Case{"OneCopy", one_copy}, Case{"TwoCopies", two_copies},
                          Case{"OnePhase", one_phase},
                          Case{"IntelPair", detail::path_limits(detail::Vendor::intel, 2)},
                          Case{"IntelMany", detail::path_limits(detail::Vendor::intel, 8)},
                          Case{"Others", detail::path_limits(detail::Vendor::other, 2)}),
        ::testing::Values(Memory::shared, Memory::ordinary, Memory::mixed)),
    name_of);

}  // namespace
}  // namespace tessera::comm::test
