/// Memory of allocate() over the fake NCCL, which checks the user guide's rules of registration:
/// symmetric windows, ncclCommRegister, ordinary memory, and the ways from one to the next.
#include "nccl_test.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::comm::test {
namespace {

class NcclMemory : public Nccl {
 protected:
  /// A broadcast and a sum over @p array, checked.
  void use(Collectives& comm, Array& array) {
    array.fill([&](auto i) { return element(rank(), i); });
    comm.wait(comm.broadcast(array.view(), 0, {}));
    for (std::int64_t i = 0; i < array.numel(); ++i) ASSERT_EQ(array[i], element(0, i));
    comm.wait(comm.all_reduce(array.view(), ReduceOp::max, {}));
    for (std::int64_t i = 0; i < array.numel(); ++i) ASSERT_EQ(array[i], element(0, i));
  }
};

TEST_F(NcclMemory, IsAWindowOfBothCommunicatorsAndCounted) {
  auto& comm = make();
  auto owner = comm.allocate("shard", Purpose::weights, 1000);
  EXPECT_EQ(nccl_in_use(), (NcclInUse{.communicators = 2, .blocks = 1, .windows = 2}));
  EXPECT_EQ(MemoryTracker::of_device().current(Purpose::weights), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(static_cast<unsigned char*>(owner.get())[i], 0);
  owner.reset();
  EXPECT_EQ(nccl_in_use(), (NcclInUse{.communicators = 2}));
  EXPECT_EQ(MemoryTracker::of_device().current(Purpose::weights), 0u);
}

/// ncclMemAlloc does not draw on the pool that keeps freed memory.
TEST_F(NcclMemory, TakesWhatThePoolKeepsUnused) {
  auto& comm = make();
  std::size_t const bytes = device_.capacity / 4 * 3;
  (void)memory::Buffer("unused", Purpose::workspace, bytes, memory::MemorySpace::device);
  int const trims = device_.trims;
  auto const owner = comm.allocate("shard", Purpose::weights, bytes);
  EXPECT_EQ(nccl_in_use(), (NcclInUse{.communicators = 2, .blocks = 1, .windows = 2}));
  EXPECT_EQ(device_.trims, trims + 1);
}

TEST_F(NcclMemory, MayOutliveTheCollectives) {
  auto owner = make().allocate("shard", Purpose::weights, 1000);
  comm_.reset();
  EXPECT_EQ(nccl_in_use(), (NcclInUse{.blocks = 1}));
  std::memset(owner.get(), 1, 1000);
}

TEST_F(NcclMemory, MayOutliveAnAbort) {
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64);
  nccl_faults().hang_at = 1;
  EXPECT_THROW(comm.wait(comm.all_reduce(a.view(), ReduceOp::sum, {})), PeerLostError);
  EXPECT_EQ(nccl_in_use(), (NcclInUse{.blocks = 1}));
}

TEST_F(NcclMemory, OneRankWithoutItMeansOrdinaryMemoryOnAll) {
  for (bool const registering : {false, true}) {
    nccl_faults().version = registering ? 22606 : 22809;  // without windows, and with them
    nccl_faults().memory_refused = !registering && is_last();
    nccl_faults().register_refused = registering && is_last();
    auto& comm = make();
    {
      Array a(comm, Placement::allocated, Dtype::fp32, 100);
      EXPECT_EQ(nccl_in_use(), (NcclInUse{.communicators = 2}));
      a.fill([&](auto i) { return element(rank(), i); });
      comm.wait(comm.broadcast(a.view(), 0, {}));
      for (int i = 0; i < 100; ++i) ASSERT_EQ(a[i], element(0, i));
    }
    comm_.reset();
  }
}

TEST_F(NcclMemory, SumsBeforeTheyAreAddedStayRegistered) {
  auto& comm = make();
  Array in(comm, Placement::allocated, Dtype::bf16, 1000 * ranks()),
      out(comm, Placement::allocated, Dtype::fp32, 1000);
  in.fill([&](auto) { return 1.0; });
  for (std::int64_t const n : {10, 1000, 10})
    for (int i = 0; i < 2; ++i)
      comm.wait(
          comm.reduce_scatter(in.view(), {n, 1000, 0}, out.view(0, n), memory::WriteMode::add, {}));
  EXPECT_EQ(nccl_in_use(),
            (NcclInUse{.communicators = 2, .blocks = 4, .windows = 8}));  // one more packs pieces
  EXPECT_EQ(out[0], 6 * ranks());
  EXPECT_EQ(out[500], 2 * ranks());
}

TEST_F(NcclMemory, IsRegisteredWhereTheLibraryHasNoWindows) {
  for (bool const old : {false, true}) {
    if (old) nccl_faults().version = 22606;
    if (!old && is_last()) setenv("NCCL_WIN_ENABLE", "0", 1);  // one rank's user is enough
    auto& comm = make();
    {
      Array a(comm, Placement::allocated, Dtype::fp32, 100);
      EXPECT_EQ(nccl_in_use(), (NcclInUse{.communicators = 2, .registrations = 2, .blocks = 1}));
      use(comm, a);
    }
    EXPECT_EQ(nccl_use()->count(NcclMemoryKind::registered), 1);
    EXPECT_EQ(nccl_use()->count(NcclMemoryKind::window), 0);
    comm_.reset();
    unsetenv("NCCL_WIN_ENABLE");
  }
}

TEST_F(NcclMemory, OneRankWithoutWindowsMeansRegisteredMemoryOnAll) {
  nccl_faults().no_windows = is_last();
  auto& comm = make();
  {
    testing::internal::CaptureStderr();
    Array a(comm, Placement::allocated, Dtype::fp32, 101),
        b(comm, Placement::allocated, Dtype::fp32, 100);
    auto const log = testing::internal::GetCapturedStderr();
    bool const warns = log.find("warning: NCCL: there is no symmetric") != std::string::npos;
    EXPECT_EQ(warns, rank() == 0) << log;
    EXPECT_EQ(nccl_in_use(), (NcclInUse{.communicators = 2, .registrations = 4, .blocks = 2}));
    use(comm, a);
    use(comm, b);
  }
  EXPECT_EQ(nccl_use()->count(NcclMemoryKind::registered), 2);
}

TEST_F(NcclMemory, CopyEnginesNeedWindows) {
  NcclOptions const zero{.cta_policy = NcclCtaPolicy::zero};
  {
    Array a(make(60s, zero), Placement::allocated, Dtype::fp32, 100);
    EXPECT_EQ(nccl_in_use(), (NcclInUse{.communicators = 2, .blocks = 1, .windows = 2}));
    use(*comm_, a);
  }
  EXPECT_EQ(nccl_use_text(*nccl_use()),
            "NCCL 2.28.9 with 2 communicators, 1 buffer in symmetric windows, CTA policy zero");
  for (bool const memory : {false, true}) {
    comm_.reset();
    nccl_faults().no_windows = !memory && is_last();
    nccl_faults().memory_refused = memory && is_last();
    auto& comm = make(60s, zero);
    expect_text(refusal<ConfigError>([&] { (void)comm.allocate("shard", Purpose::weights, 64); }),
                {"--nccl_cta_policy zero", "shard", "symmetric window",
                 memory ? "ncclMemAlloc" : "NCCL_CUMEM_ENABLE"});
  }
}

}  // namespace
}  // namespace tessera::comm::test
