#include "tessera/memory/limits.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::memory {
namespace {

/// Oracle: MemTotal of /proc/meminfo, which no limit can exceed.
TEST(AvailableMemory, IsAtMostWhatTheNodeHas) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kib = 0, total_kib = 0;
  for (std::string unit; file >> key >> kib; std::getline(file, unit))
    if (key == "MemTotal:") total_kib = kib;
  auto const available = available_memory();
  EXPECT_GT(available.bytes, 0u);
  EXPECT_LE(available.bytes, total_kib * 1024);
  EXPECT_FALSE(available.limited_by.empty());
}

TEST(AvailableMemory, SubtractsMemoryThatIsAllocatedButNotTouched) {
  std::size_t const available = available_memory().bytes;
  Buffer const untouched("test.untouched", Purpose::workspace, available / 10 * 6);
  EXPECT_LT(available_memory().bytes, available / 10 * 6);
  EXPECT_THROW(Buffer("test.second", Purpose::workspace, available / 10 * 6), OutOfMemoryError);
}

TEST(RequireAvailable, CountsTheRequestsOfAllRanksOfTheNode) {
  std::size_t const available = available_memory().bytes;
  EXPECT_NO_THROW(require_available("test.one", available / 2, 1));
  EXPECT_THROW(require_available("test.four", available / 2, 4), OutOfMemoryError);
}

TEST(RequireAvailable, DoesNotCheckSmallRequests) {
  EXPECT_NO_THROW(
      require_available("test.small", (std::size_t{1} << 20) - 1, std::size_t{1} << 40));
}

}  // namespace
}  // namespace tessera::memory
