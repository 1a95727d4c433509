#include "tessera/comm/nccl/nccl_use.hpp"

#include <gtest/gtest.h>

#include "nccl/nccl_collectives.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm {
namespace {

TEST(NcclUse, IsNoneUntilNcclStarts) {
  detail::note_nccl_buffer(NcclMemoryKind::plain);
  EXPECT_FALSE(nccl_use());
}

TEST(NcclUse, CountsBuffersByKind) {
  detail::note_nccl({"2.28.9", 2, NcclCtaPolicy::library_default, {}});
  for (int i = 0; i < 3; ++i) detail::note_nccl_buffer(NcclMemoryKind::registered);
  detail::note_nccl_buffer(NcclMemoryKind::plain);
  ASSERT_TRUE(nccl_use());
  EXPECT_EQ(nccl_use_text(*nccl_use()),
            "NCCL 2.28.9 with 2 communicators, 3 buffers registered, 1 buffer not registered");
  detail::note_nccl({"2.30.7", 1, NcclCtaPolicy::zero, {}});
  detail::note_nccl_buffer(NcclMemoryKind::window);
  EXPECT_EQ(nccl_use_text(*nccl_use()),
            "NCCL 2.30.7 with 1 communicator, 1 buffer in symmetric windows, CTA policy zero");
}

TEST(NcclUse, PoliciesHaveTheNamesOfTheOption) {
  for (auto const policy :
       {NcclCtaPolicy::library_default, NcclCtaPolicy::efficiency, NcclCtaPolicy::zero})
    EXPECT_EQ(nccl_cta_policy(name_of(policy)), policy);
  EXPECT_THROW(nccl_cta_policy("none"), InternalError);
}

}  // namespace
}  // namespace tessera::comm
