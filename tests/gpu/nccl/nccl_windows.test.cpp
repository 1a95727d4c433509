/// Symmetric windows over the fake NCCL, which checks that all ranks make the same calls with the
/// same sizes and pass the same places.
#include "nccl_test.hpp"

namespace tessera::comm::test {
namespace {

class NcclWindows : public Nccl {};

TEST_F(NcclWindows, AWindowThatFailsOnARankEndsAllRanks) {
  nccl_faults().window_refused = is_last();
  auto& comm = make(brief);
  auto const allocate = [&] { (void)comm.allocate("shard", Purpose::weights, 1000); };
  if (is_last())
    expect_text(refusal<PeerLostError>(allocate), {"ncclCommWindowRegister of shard (1000 bytes)",
                                                   "cannot be mapped", "NCCL_WIN_ENABLE=0"});
  else
    expect_text(refusal<PeerLostError>(allocate),
                {"ncclCommWindowRegister of shard", "800 ms", "NCCL_WIN_ENABLE=0"});
  EXPECT_EQ(nccl_in_use(), NcclInUse{});
  EXPECT_EQ(MemoryTracker::of_device().current(Purpose::weights), 0u);
}

TEST_F(NcclWindows, SplitGroupsHaveWindowsOfTheirOwn) {
  auto& comm = make();
  auto const group = comm.split({.color = 0, .key = rank(), .name = "all"});
  {
    Array a(comm, Placement::allocated, Dtype::bf16, 64),
        b(*group, Placement::allocated, Dtype::bf16, 64);
    EXPECT_EQ(nccl_in_use(), (NcclInUse{.communicators = 4, .blocks = 2, .windows = 4}));
    comm.wait(comm.broadcast(a.view(), 0, {}));
    group->wait(group->broadcast(b.view(), 0, {}));
  }
}

/// The fake NCCL finds symmetric memory at different offsets.
TEST_F(NcclWindows, DifferentPlacesOfAWindowAreABreach) {
  if (ranks() == 1) return;
  auto& comm = make(brief);
  Array a(comm, Placement::allocated, Dtype::fp32, 64);
  EXPECT_THROW(comm.wait(comm.broadcast(a.view(is_last() ? 32 : 0, 32), 0, {})), InternalError);
  auto const breaches = take_nccl_breaches();
  ASSERT_EQ(breaches.size(), 1u);
  expect_text(breaches[0], {"different places of symmetric windows"});
}

}  // namespace
}  // namespace tessera::comm::test
