#include "tessera/memory/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::memory {
namespace {

TEST(MemoryUse, CountsNowAndThePeakOfASpace) {
  auto const before = memory_use().host;
  { Buffer const gone("gone", Purpose::data, std::size_t{3} << 20); }
  Buffer const kept("kept", Purpose::data, std::size_t{1} << 20);
  auto const after = memory_use().host;
  EXPECT_EQ(after.now, before.now + (std::size_t{1} << 20));
  EXPECT_GE(after.peak, before.now + (std::size_t{3} << 20));
}

TEST(PinnedCounter, KeepsItsPeak) {
  PinnedCounter counter;
  counter.add(5);
  counter.add(7);
  counter.remove(5);
  counter.add(1);
  EXPECT_EQ(counter.use().now, 8u);
  EXPECT_EQ(counter.use().peak, 12u);
}

TEST(BytesByPurpose, AreInDescendingOrder) {
  EXPECT_EQ(bytes_by_purpose(MemorySpace::device), "nothing");
  Buffer const small("small", Purpose::gradients, std::size_t{2} << 20),
      large("large", Purpose::weights, std::size_t{4} << 20);
  EXPECT_THAT(bytes_by_purpose(MemorySpace::host),
              ::testing::HasSubstr("weights 4.0 MiB, gradients 2.0 MiB"));
}

/// Small allocations too.
TEST(MemoryLimit, BoundsHostMemory) {
  std::size_t const held = memory_use().host.now;
  limit_memory(MemorySpace::host, held + (std::size_t{4} << 20));
  EXPECT_EQ(left_of_limit(MemorySpace::host), std::size_t{4} << 20);
  std::string message;
  try {
    Buffer const first("first", Purpose::weights, (std::size_t{4} << 20) - 4096);
    Buffer const second("second", Purpose::gradients, 8192);
  } catch (OutOfMemoryError const& e) {
    message = e.what();
  }
  limit_memory(MemorySpace::host, 0);
  EXPECT_THAT(message, ::testing::AllOf(::testing::HasSubstr("8.0 KiB for second"),
                                        ::testing::HasSubstr("are left (--host_memory)"),
                                        ::testing::HasSubstr("weights 4.0 MiB"),
                                        ::testing::HasSubstr("raise --host_memory")));
  EXPECT_NO_THROW(Buffer("third", Purpose::data, std::size_t{8} << 20));
}

}  // namespace
}  // namespace tessera::memory
