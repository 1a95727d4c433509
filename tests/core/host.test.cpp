#include "tessera/core/process.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace tessera {
namespace {

TEST(Host, HasAName) { EXPECT_FALSE(host_name().empty()); }

/// A UUID: 36 characters with hyphens at fixed places.
TEST(Host, TheBootHasAnId) {
  if (!std::filesystem::exists("/proc/sys/kernel/random/boot_id")) GTEST_SKIP() << "no /proc";
  auto const id = boot_id();
  ASSERT_EQ(id.size(), 36u);
  for (std::size_t const at : {8u, 13u, 18u, 23u}) EXPECT_EQ(id[at], '-');
  EXPECT_EQ(boot_id(), id);
}

}  // namespace
}  // namespace tessera
