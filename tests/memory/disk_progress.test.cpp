#include "detail/disk_ring.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace tessera::memory::detail {
namespace {

TEST(DiskProgress, RepeatsIncompletePages) {
  DiskProgress progress(3 * 4096);
  EXPECT_EQ(progress.advance(5000), 0);
  EXPECT_EQ(progress.completed(), 4096u);
  EXPECT_EQ(progress.advance(-EINTR), 0);
  EXPECT_EQ(progress.remaining(), 2u * 4096);
  EXPECT_EQ(progress.advance(2 * 4096), 0);
  EXPECT_EQ(progress.remaining(), 0u);
}

TEST(DiskProgress, GivesUpWhenNothingComes) {
  DiskProgress progress(4096);
  int calls = 1;
  while (progress.advance(100) == 0) ++calls;
  EXPECT_EQ(calls, 16);
  EXPECT_EQ(progress.completed(), 0u);
}

TEST(DiskProgress, TellsTheReasonOfTheSystem) {
  DiskProgress progress(4096);
  EXPECT_EQ(progress.advance(-ENOSPC), ENOSPC);
  EXPECT_EQ(progress.remaining(), 4096u);
}

}  // namespace
}  // namespace tessera::memory::detail
