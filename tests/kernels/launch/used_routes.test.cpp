#include "tessera/kernels/launch/used_routes.hpp"

#include <gtest/gtest.h>

#include "launch/timed.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::kernels {
namespace {

TEST(UsedRoutes, AreCountedByComputation) {
  reset_used_routes();
  EXPECT_EQ(used_routes_text(), "");
  detail::note_route("products", "first way");
  for (int i = 0; i < 3; ++i) detail::note_route("products", "other way");
  detail::note_route("attention", "tiles");
  EXPECT_EQ(used_routes(), (std::vector<UsedRoute>{{"attention", "tiles", 1},
                                                   {"products", "other way", 3},
                                                   {"products", "first way", 1}}));
  EXPECT_EQ(used_routes_text(), "attention tiles; products other way (3), first way (1)");
  reset_used_routes();
  EXPECT_TRUE(used_routes().empty());
}

/// A run plans its memory with passes that compute nothing.
TEST(UsedRoutes, PlannedPassesAreNotCounted) {
  reset_used_routes();
  {
    memory::ArenaPlanning const planning;
    detail::note_route("attention", "portable kernel");
  }
  EXPECT_TRUE(used_routes().empty());
}

}  // namespace
}  // namespace tessera::kernels
