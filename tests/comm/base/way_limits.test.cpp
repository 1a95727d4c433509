#include "base/way_limits.hpp"

#include <gtest/gtest.h>

#include "host/node_control.hpp"

namespace tessera::comm::detail {
namespace {

/// What the ways take for granted, whoever changes a figure.
TEST(WayLimits, FitTheStagingBuffersAndEachOther) {
  for (Vendor const vendor : {Vendor::intel, Vendor::other})
    for (int const ranks : {2, 3, 4, 8, 64}) {
      WayLimits const limits = way_limits(vendor, ranks);
      EXPECT_LE(limits.small, NodeControl::half_bytes) << "one phase stages everything";
      EXPECT_LE(limits.small_reduction, NodeControl::half_bytes);
      EXPECT_LE(limits.small, limits.staged);
      EXPECT_LE(limits.staged_shared_reduction, limits.staged_reduction);
      EXPECT_GE(limits.copied_tile, 64u);
      EXPECT_GE(limits.reduced_chunk, 64u);
    }
}

TEST(WayLimits, APairCopiesOnceWhereManyStage) {
  EXPECT_LT(way_limits(Vendor::intel, 2).staged, way_limits(Vendor::intel, 8).staged);
  EXPECT_LT(way_limits(Vendor::intel, 2).read_broadcast,
            way_limits(Vendor::intel, 8).read_broadcast);
}

/// Equal processors take the same way.
TEST(WayLimits, OfThisProcessorAreThoseOfAVendor) {
  std::size_t const staged = way_limits(2).staged;
  EXPECT_TRUE(staged == way_limits(Vendor::intel, 2).staged ||
              staged == way_limits(Vendor::other, 2).staged);
  EXPECT_EQ(way_limits(2).staged, staged);
  EXPECT_EQ(way_limits(2).copied_tile, way_limits(4).copied_tile);
  EXPECT_GT(streamed_copy(), way_limits(2).staged_reduction) << "staged data stays in the caches";
}

}  // namespace
}  // namespace tessera::comm::detail
