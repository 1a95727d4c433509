/// What Tessera owes NCCL and its own callers, call by call, with faults. Oracle: the user guide's
/// rules, which the fake checks.
#include <latch>
#include <optional>

#include "nccl_test.hpp"

namespace tessera::comm::test {
namespace {

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
  std::latch ready(1);
  auto const producer = memory::make_stream_queue("producer");
  producer->submit([&] {
    ready.wait();
    gradients.fill([](auto) { return 1.0; });
  });
  auto const reduction = comm.all_reduce(gradients.view(), ReduceOp::sum, producer->record());
  comm.wait(comm.broadcast(weights.view(), 0, {}));
  EXPECT_FALSE(reduction.event().done());
  ready.count_down();
  comm.wait(reduction);
  EXPECT_EQ(gradients[99], ranks());
}

TEST_F(Nccl, OrderBetweenTheQueuesIsByEvents) {
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

TEST_F(Nccl, AMissingRankAlsoEndsOperationsBehindThoseOfTheOtherCommunicator) {
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64),
      b(comm, Placement::allocated, Dtype::fp32, 64);
  if (is_last()) nccl_faults().hang_at = 1;
  auto const sum = comm.all_reduce(a.view(), ReduceOp::sum, {});
  auto const weights = comm.broadcast(b.view(), 0, sum.event());
  expect_text(refusal<PeerLostError>([&] { comm.wait(weights); }),
              {"NCCL all_reduce number 1", "256 bytes", "did not finish"});
  EXPECT_EQ(nccl_in_use().communicators, 0);
}

/// Each set of communicators has a watchdog: none waits for the abort of another.
TEST_F(Nccl, AMissingRankEndsTheOperationsOfAllGroups) {
  auto& comm = make(brief);
  auto const group = comm.split({.color = 0, .key = rank(), .name = "all"});
  Array a(comm, Placement::allocated, Dtype::fp32, 64),
      b(*group, Placement::allocated, Dtype::fp32, 64),
      c(*group, Placement::allocated, Dtype::fp32, 64);
  if (is_last()) nccl_faults().hang_at = 1;
  auto const sum = comm.all_reduce(a.view(), ReduceOp::sum, {});
  auto const weights = group->broadcast(b.view(), 0, {});
  auto const behind = group->all_reduce(c.view(), ReduceOp::sum, sum.event());
  expect_text(refusal<PeerLostError>([&] { comm.wait(sum); }), {"NCCL all_reduce number 1"});
  expect_text(refusal<PeerLostError>([&] { group->wait(behind); }), {"did not finish"});
  expect_text(refusal<PeerLostError>([&] { group->wait(weights); }), {"did not finish"});
  EXPECT_EQ(nccl_in_use().communicators, 0);
}

TEST_F(Nccl, AnErrorThatUnwindsDoesNotWaitForAMissingRank) {
  std::optional<Array> a, b;
  auto const use = [&] {
    auto const comm =
        make_device(make_mpi(tessera::test::session(), 60s), 60s, DeviceTransport::nccl);
    a.emplace(*comm, Placement::allocated, Dtype::fp32, 64);
    b.emplace(*comm, Placement::allocated, Dtype::fp32, 64);
    if (is_last()) nccl_faults().hang_at = 1;
    auto const sum = comm->all_reduce(a->view(), ReduceOp::sum, {});
    (void)comm->broadcast(b->view(), 0, sum.event());
    throw ConfigError("of another part");
  };
  EXPECT_THROW(use(), ConfigError);
}

/// Memory that an operation uses ends before the collectives do.
TEST_F(Nccl, AnErrorThatUnwindsKeepsMemoryUntilTheOperationsAreAborted) {
  auto const use = [&] {
    auto const comm =
        make_device(make_mpi(tessera::test::session(), 60s), 60s, DeviceTransport::nccl);
    Array a(*comm, Placement::allocated, Dtype::fp32, 64),
        b(*comm, Placement::allocated, Dtype::fp32, 64);
    if (is_last()) nccl_faults().hang_at = 1;
    (void)comm->all_reduce(a.view(), ReduceOp::sum, {});
    throw ConfigError("of another part");
  };
  EXPECT_THROW(use(), ConfigError);
}

TEST_F(Nccl, TheDeadlineCountsFromWhenTheInputIsThere) {
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64);
  auto const producer = memory::make_stream_queue("producer");
  producer->submit([] { std::this_thread::sleep_for(2 * brief); });  // longer than the deadline
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

}  // namespace
}  // namespace tessera::comm::test
