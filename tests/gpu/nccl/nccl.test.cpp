/// What Tessera owes NCCL and its own callers, call by call, with faults. Oracle: the user guide's
/// rules, which the fake checks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>

#include "comm_test.hpp"
#include "fake_device.hpp"
#include "fake_nccl.hpp"
#include "tessera/comm/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/host.hpp"

namespace tessera::comm::test {
namespace {

using memory::MemoryTracker;
using memory::Purpose;
using tessera::test::nccl_faults;
using tessera::test::nccl_in_use;
using tessera::test::take_nccl_breaches;
using tessera::test::take_nccl_ctas;
using tessera::test::take_nccl_launches;

constexpr Deadline brief = 800ms;

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    nccl_faults() = {};
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    take_nccl_launches();
    held_before_ = MemoryTracker::of_device().current_total();
  }
  void TearDown() override {
    comm_.reset();
    forget_events();
    nccl_faults() = {};
    EXPECT_EQ(take_nccl_breaches(), std::vector<std::string>{});
    EXPECT_EQ(nccl_in_use(), tessera::test::NcclInUse{});
    EXPECT_EQ(MemoryTracker::of_device().current_total(), held_before_);
    EXPECT_EQ(device_.held, 0u);
  }

  Collectives& make(Deadline deadline = 60s) {
    comm_ = make_device(make_mpi(tessera::test::session(), 60s), deadline, DeviceTransport::nccl);
    return *comm_;
  }
  int rank() const { return tessera::test::session().info().rank; }
  int ranks() const { return tessera::test::session().info().world_size; }
  bool is_last() const { return rank() == ranks() - 1; }

  /// The text of the E that @p work throws.
  template <class E>
  std::string refusal(std::function<void()> const& work) {
    try {
      work();
    } catch (E const& error) {
      return error.what();
    } catch (std::exception const& error) {
      ADD_FAILURE() << "another error: " << error.what();
      return {};
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  static void expect_text(std::string const& text, std::vector<std::string> const& parts) {
    for (auto const& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }

  tessera::test::FakeDevice device_;
  std::unique_ptr<Collectives> comm_;
  std::size_t held_before_ = 0;
};

TEST_F(Nccl, ReductionsHaveACommunicatorOfTheirOwn) {
  auto& comm = make();
  Array a(comm, Placement::allocated, Dtype::fp32, 8 * ranks());
  StridedShards const whole{8, 8, 0};
  comm.wait(comm.all_gather(a.view(), whole, {}));
  comm.wait(comm.reduce_scatter(a.view(), whole, a.view(8 * rank(), 8),
                                memory::WriteMode::overwrite, {}));
  comm.wait(comm.all_reduce(a.view(), ReduceOp::sum, {}));
  comm.wait(comm.broadcast(a.view(), 0, {}));
  comm.wait(comm.reduce(a.view(), ReduceOp::max, 0, {}));
  std::vector<std::string> expected{"0 AllGather", "1 ReduceScatter", "1 AllReduce", "0 Broadcast",
                                    "1 Reduce"};
  if (ranks() == 1) expected.erase(expected.begin());  // nothing moves
  EXPECT_EQ(take_nccl_launches(), expected);
  EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
}

TEST_F(Nccl, BothCommunicatorsTogetherTakeAtMostTheGivenMultiprocessors) {
  struct Case {
    int multiprocessors, of_each;
  };
  for (Case const c : {Case{0, std::numeric_limits<int>::min()}, {1, 1}, {17, 8}, {32, 16}}) {
    comm_.reset();
    take_nccl_ctas();
    comm_ = make_device(make_mpi(tessera::test::session(), 60s), 60s, DeviceTransport::nccl,
                        c.multiprocessors);
    auto const group = comm_->split({.color = 0, .key = rank(), .name = "all"});
    EXPECT_EQ(take_nccl_ctas(), std::vector<int>(4, c.of_each)) << c.multiprocessors;
  }
  comm_.reset();
  nccl_faults().version = 22506;  // one communicator
  take_nccl_ctas();
  comm_ = make_device(make_mpi(tessera::test::session(), 60s), 60s, DeviceTransport::nccl, 17);
  EXPECT_EQ(take_nccl_ctas(), std::vector<int>{17});
}

TEST_F(Nccl, OneCommunicatorWhereTwoCouldWaitForEachOther) {
  for (bool const old : {false, true}) {
    if (old) nccl_faults().version = 22506;
    if (!old && is_last())
      setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);  // one rank's user is enough
    auto& comm = make();
    EXPECT_EQ(nccl_in_use().communicators, 1);
    char const* const setting = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    EXPECT_EQ(std::string(setting ? setting : "none"), old ? "none" : is_last() ? "0" : "1");
    {
      Array a(comm, Placement::allocated, Dtype::fp32, 8);
      comm.wait(comm.broadcast(a.view(), 0, {}));
      comm.wait(comm.all_reduce(a.view(), ReduceOp::sum, {}));
    }
    EXPECT_EQ(take_nccl_launches(), (std::vector<std::string>{"0 Broadcast", "0 AllReduce"}));
    comm_.reset();
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  }
}

TEST_F(Nccl, AReductionThatWaitsForItsInputDoesNotHoldUpAGather) {
  auto& comm = make();
  Array gradients(comm, Placement::allocated, Dtype::bf16, 100),
      weights(comm, Placement::allocated, Dtype::bf16, 100);
  std::atomic<bool> ready{false};
  auto const producer = memory::make_stream_queue("producer");
  producer->submit([&] {
    while (!ready) std::this_thread::sleep_for(1ms);
    gradients.fill([](auto) { return 1.0; });
  });
  auto const reduction = comm.all_reduce(gradients.view(), ReduceOp::sum, producer->record());
  comm.wait(comm.broadcast(weights.view(), 0, {}));
  EXPECT_FALSE(reduction.event().done());
  ready = true;
  comm.wait(reduction);
  EXPECT_EQ(gradients[99], ranks());
}

TEST_F(Nccl, OrderBetweenTheLanesIsByEvents) {
  auto& comm = make();
  std::int64_t const n = 500;
  Array a(comm, Placement::allocated, Dtype::fp32, n * ranks());
  a.fill([&](auto) { return 1.0; });
  device_.jitter_us = 300;
  double expected = 1;
  Pending last;
  for (int step = 0; step < 20; ++step,
           expected *= ranks()) {  // the sum of the own block, then all blocks from their owners
    if (expected > 1e6)
      expected = 1, comm.wait(std::exchange(last, {})), a.fill([](auto) { return 1.0; });
    last = comm.reduce_scatter(a.view(), {n, n, 0}, a.view(n * rank(), n),
                               memory::WriteMode::overwrite, last.event());
    last = comm.all_gather(a.view(), {n, n, 0}, last.event());
  }
  comm.wait(last);
  for (std::int64_t i = 0; i < a.numel(); ++i) ASSERT_EQ(a[i], expected) << i;
}

TEST_F(Nccl, PiecesOfBlocksAreOneOperation) {
  auto& comm = make();
  Array a(comm, Placement::allocated, Dtype::bf16, 20 * ranks()),
      out(comm, Placement::allocated, Dtype::bf16, 5);
  comm.wait(comm.all_gather(a.view(20 * rank(), 20), a.view(), {0, 20, 3}, {}));
  comm.wait(
      comm.reduce_scatter(a.view(), {5, 20, 3}, out.view(), memory::WriteMode::overwrite, {}));
  EXPECT_EQ(take_nccl_launches(), (std::vector<std::string>{"0 AllGather", "1 ReduceScatter"}));
}

TEST_F(Nccl, WrongArgumentsDoNotReachNccl) {
  auto& comm = make();
  Array a(comm, Placement::allocated, Dtype::fp32, 10 * ranks()),
      half(comm, Placement::allocated, Dtype::fp16, 10),
      wide(comm, Placement::allocated, Dtype::fp64, 10 * ranks());
  Array host(comm, Placement::ordinary, Dtype::fp32, 10 * ranks()),
      bytes(comm, Placement::allocated, Dtype::uint8, 8);
  StridedShards const whole{10, 10, 0};
  EXPECT_THROW((void)comm.broadcast(a.view(), ranks(), {}), InternalError);
  EXPECT_THROW((void)comm.reduce(a.view(), ReduceOp::sum, -1, {}), InternalError);
  EXPECT_THROW((void)comm.all_reduce(bytes.view(), ReduceOp::sum, {}), InternalError);
  EXPECT_THROW((void)comm.all_gather(a.view(), {11, 11, 0}, {}), InternalError);
  EXPECT_THROW((void)comm.all_gather(half.view(), a.view(), whole, {}), InternalError);
  EXPECT_THROW(
      (void)comm.reduce_scatter(a.view(), whole, a.view(0, 3), memory::WriteMode::overwrite, {}),
      InternalError);
  EXPECT_THROW((void)comm.scatter(half.view(), a.view(), rank(), {}), InternalError);
  EXPECT_THROW((void)comm.gather(a.view(), half.view(), rank(), {}), InternalError);
  expect_text(
      refusal<InternalError>([&] { (void)comm.all_gather(host.view(0, 10), a.view(), whole, {}); }),
      {"all_gather number 9", "host memory"});
  expect_text(refusal<InternalError>([&] {
                (void)comm.reduce_scatter(wide.view(), whole, wide.view(10 * rank(), 10),
                                          memory::WriteMode::add, {});
              }),
              {"fp64", "accumulation"});
  EXPECT_EQ(take_nccl_launches(), std::vector<std::string>{});
  comm.barrier();
}

TEST_F(Nccl, OperandsInHostMemoryGoTheHostsWay) {
  auto& comm = make();
  Array a(comm, Placement::ordinary, Dtype::bf16, 1000);
  a.fill([&](auto i) { return element(rank(), i); });
  comm.wait(comm.all_reduce(a.view(), ReduceOp::sum, {}));
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(a[i], rounded(serial_sum(ranks(), i, Dtype::bf16), Dtype::bf16));
  EXPECT_TRUE(agree(comm, true));
  EXPECT_EQ(take_nccl_launches(), std::vector<std::string>{});
}

TEST_F(Nccl, BarrierWaitsForTheDevice) {
  auto& comm = make();
  Array a(comm, Placement::allocated, Dtype::fp32, 300'000);
  auto const first = comm.broadcast(a.view(), 0, {}),
             second = comm.all_reduce(a.view(), ReduceOp::sum, {});
  comm.barrier();
  EXPECT_TRUE(first.event().done());
  EXPECT_TRUE(second.event().done());
}

TEST_F(Nccl, AMissingRankIsNamedWithTheOperation) {
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::bf16, 64 * ranks());
  comm.wait(comm.broadcast(a.view(), 0, {}));
  if (is_last()) nccl_faults().hang_at = 2;
  auto const pending = comm.reduce_scatter(a.view(), {64, 64, 0}, a.view(64 * rank(), 64),
                                           memory::WriteMode::overwrite, {});
  std::vector<std::string> const named{
      "NCCL reduce_scatter number 2 (64 bf16 elements, 128 bytes per rank",
      concat("rank ", rank(), " (", host_name(), ")"), "800 ms", "rank is missing"};
  expect_text(refusal<PeerLostError>([&] { comm.wait(pending); }), named);
  expect_text(refusal<PeerLostError>([&] { (void)comm.all_reduce(a.view(), ReduceOp::sum, {}); }),
              named);
  EXPECT_EQ(nccl_in_use().communicators, 0);
}

TEST_F(Nccl, AHostThatWaitsForKernelsLearnsItToo) {
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64);
  if (is_last()) nccl_faults().hang_at = 1;
  auto const compute = memory::make_stream_queue("compute");
  comm.broadcast(a.view(), 0, {}).order_before(*compute);
  compute->record().wait("kernels behind the broadcast", 60s);
  expect_text(refusal<PeerLostError>([&] { (void)comm.broadcast(a.view(), 0, {}); }),
              {"NCCL broadcast number 1", "256 bytes", "did not finish"});
}

TEST_F(Nccl, TheDeadlineCountsFromWhenTheInputIsThere) {
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64);
  auto const producer = memory::make_stream_queue("producer");
  producer->submit([] { std::this_thread::sleep_for(2 * brief); });
  auto const first = comm.all_reduce(a.view(), ReduceOp::sum, producer->record());
  auto const second = comm.broadcast(a.view(), 0, first.event());
  comm.wait(second);
  comm.wait(first);
}

TEST_F(Nccl, AnErrorOfThePeersIsReported) {
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64);
  if (rank() == 0) nccl_faults().remote_error_at = 1;
  auto const text =
      refusal<PeerLostError>([&] { comm.wait(comm.all_reduce(a.view(), ReduceOp::max, {})); });
  expect_text(
      text, {"NCCL all_reduce number 1 (64 fp32 elements, 256 bytes per rank, max)", host_name()});
  if (rank() == 0)
    expect_text(text, {"remote process exited", "the peer's connection was reset", "NCCL_DEBUG"});
}

TEST_F(Nccl, DifferentSizesAreAnError) {
  if (ranks() == 1) return;
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64);
  EXPECT_THROW(comm.wait(comm.broadcast(a.view(0, is_last() ? 63 : 64), 0, {})), InternalError);
  auto const breaches = take_nccl_breaches();
  ASSERT_EQ(breaches.size(), 1u);
  expect_text(breaches[0], {"different operations, sizes"});
}

TEST_F(Nccl, VersionsMustBeTheSame) {
  if (is_last()) nccl_faults().version = 22706;
  if (ranks() == 1) return (void)make();
  expect_text(refusal<ConfigError>([&] { make(); }),
              {"2.27.6", "2.28.9", concat("rank ", rank()), host_name()});
}

TEST_F(Nccl, NoUniqueIdEndsAllRanks) {
  if (rank() == 0) nccl_faults().no_unique_id = true;
  auto const text = refusal<ConfigError>([&] { make(); });
  expect_text(text, {"rank 0"});
  if (rank() == 0)
    expect_text(text, {"ncclGetUniqueId", "no socket interface was found", host_name()});
}

TEST_F(Nccl, AStartThatHangsEndsAtTheDeadline) {
  if (is_last()) nccl_faults().start_hangs = true;
  expect_text(refusal<PeerLostError>([&] { make(brief); }),
              {concat("ncclCommInitRankConfig of ", ranks(), " ranks"), "800 ms",
               concat("rank ", rank(), " ("), host_name()});
}

TEST_F(Nccl, ASplitThatHangsEndsAtTheDeadline) {
  if (is_last()) nccl_faults().split_hangs = true;
  expect_text(refusal<PeerLostError>([&] { make(brief); }),
              {"ncclCommSplit", "800 ms", host_name()});
}

TEST_F(Nccl, AStartThatFailsOnOneRankFailsOnAll) {
  if (is_last()) nccl_faults().start_refused = true;
  auto const text = refusal<PeerLostError>([&] { make(brief); });
  if (is_last()) expect_text(text, {"ncclCommInitRankConfig", "no transport fits"});
}

TEST_F(Nccl, MemoryIsRegisteredOnBothCommunicatorsAndCounted) {
  auto& comm = make();
  auto owner = comm.allocate("shard", Purpose::weights, 1000);
  EXPECT_EQ(nccl_in_use(), (tessera::test::NcclInUse{2, 2, 1}));
  EXPECT_EQ(MemoryTracker::of_device().current(Purpose::weights), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(static_cast<unsigned char*>(owner.get())[i], 0);
  owner.reset();
  EXPECT_EQ(nccl_in_use(), (tessera::test::NcclInUse{2, 0, 0}));
  EXPECT_EQ(MemoryTracker::of_device().current(Purpose::weights), 0u);
}

TEST_F(Nccl, MemoryMayOutliveTheCollectives) {
  auto owner = make().allocate("shard", Purpose::weights, 1000);
  comm_.reset();
  EXPECT_EQ(nccl_in_use(), (tessera::test::NcclInUse{0, 0, 1}));
  std::memset(owner.get(), 1, 1000);
}

TEST_F(Nccl, MemoryMayOutliveAnAbort) {
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64);
  nccl_faults().hang_at = 1;
  EXPECT_THROW(comm.wait(comm.all_reduce(a.view(), ReduceOp::sum, {})), PeerLostError);
  EXPECT_EQ(nccl_in_use(), (tessera::test::NcclInUse{0, 0, 1}));
}

TEST_F(Nccl, OneRankWithoutNcclsMemoryMeansOrdinaryMemoryOnAll) {
  for (bool const registering : {false, true}) {
    nccl_faults().memory_refused = !registering && is_last();
    nccl_faults().register_refused = registering && is_last();
    auto& comm = make();
    {
      Array a(comm, Placement::allocated, Dtype::fp32, 100);
      EXPECT_EQ(nccl_in_use(), (tessera::test::NcclInUse{2, 0, 0}));
      a.fill([&](auto i) { return element(rank(), i); });
      comm.wait(comm.broadcast(a.view(), 0, {}));
      for (int i = 0; i < 100; ++i) ASSERT_EQ(a[i], element(0, i));
    }
    comm_.reset();
  }
}

TEST_F(Nccl, TooMuchMemoryIsRefusedOnAllRanksAndLeavesTheRestUsable) {
  auto& comm = make();
  if (is_last()) device_.capacity = 1 << 20;
  auto const text =
      refusal<OutOfMemoryError>([&] { (void)comm.allocate("much", Purpose::gradients, 8 << 20); });
  if (is_last())
    expect_text(text, {"much", "8.0 MiB", "free"});
  else
    expect_text(text, {"another rank"});
  Array a(comm, Placement::allocated, Dtype::fp32, 100);
  comm.wait(comm.all_reduce(a.view(), ReduceOp::sum, {}));
}

TEST_F(Nccl, SumsBeforeTheyAreAddedStayRegistered) {
  auto& comm = make();
  Array in(comm, Placement::allocated, Dtype::bf16, 1000 * ranks()),
      out(comm, Placement::allocated, Dtype::fp32, 1000);
  in.fill([&](auto) { return 1.0; });
  for (std::int64_t const n : {10, 1000, 10})
    for (int i = 0; i < 2; ++i)
      comm.wait(
          comm.reduce_scatter(in.view(), {n, 1000, 0}, out.view(0, n), memory::WriteMode::add, {}));
  EXPECT_EQ(nccl_in_use(), (tessera::test::NcclInUse{2, 8, 4}));  // one more packs pieces
  EXPECT_EQ(out[0], 6 * ranks());
  EXPECT_EQ(out[500], 2 * ranks());
}

}  // namespace
}  // namespace tessera::comm::test
