#include "base/path_limits.hpp"

#include <gtest/gtest.h>

#include "host/node_control.hpp"

namespace tessera::comm::detail {
namespace {

/// What the ways take for granted, whoever changes a figure.
TEST(PathLimits, FitTheStagingBuffersAndEachOther) {
  for (Vendor const vendor : {Vendor::intel, Vendor::other})
    for (int const ranks : {2, 3, 4, 8, 64}) {
      PathLimits const limits = path_limits(vendor, ranks);
      EXPECT_LE(limits.small, NodeControl::half_bytes) << "one phase stages everything";
      EXPECT_LE(limits.small_reduction, NodeControl::half_bytes);
      EXPECT_LE(limits.small, limits.staged);
      EXPECT_LE(limits.staged_shared_reduction, limits.staged_reduction);
      EXPECT_GE(limits.copied_tile, 64u);
      EXPECT_GE(limits.reduced_chunk, 64u);
    }
}

TEST(PathLimits, APairCopiesOnceWhereManyStage) {
  EXPECT_LT(path_limits(Vendor::intel, 2).staged, path_limits(Vendor::intel, 8).staged);
  EXPECT_LT(path_limits(Vendor::intel, 2).read_broadcast,
            path_limits(Vendor::intel, 8).read_broadcast);
}

/// Equal processors take the same way.
TEST(PathLimits, OfThisProcessorAreThoseOfAVendor) {
  std::size_t const staged = path_limits(2).staged;
  EXPECT_TRUE(staged == path_limits(Vendor::intel, 2).staged ||
              staged == path_limits(Vendor::other, 2).staged);
  EXPECT_EQ(path_limits(2).staged, staged);
  EXPECT_EQ(path_limits(2).copied_tile, path_limits(4).copied_tile);
  EXPECT_GT(streamed_copy(), path_limits(2).staged_reduction) << "staged data stays in the caches";
}

}  // namespace
}  // namespace tessera::comm::detail
