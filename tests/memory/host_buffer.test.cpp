#include "tessera/memory/buffer.hpp"

#include <gtest/gtest.h>

#include "tessera/memory/device.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::memory {
namespace {

TEST(HostBuffer, IsPinnedWhereThatIsWanted) {
  simulate_device({.memory_bytes = std::size_t{1} << 20});
  auto const before = memory_use();
  auto const pinned = make_host_buffer("p", Purpose::weights, 131072, MemorySpace::pinned);
  EXPECT_EQ(pinned.space(), MemorySpace::pinned);
  EXPECT_EQ(memory_use().pinned.now - before.pinned.now, 131072u);
  auto const pageable = make_host_buffer("h", Purpose::weights, 65536, MemorySpace::host);
  EXPECT_EQ(pageable.space(), MemorySpace::host);
  EXPECT_EQ(memory_use().pinned.now - before.pinned.now, 131072u);
  EXPECT_EQ(memory_use().host.now - before.host.now, 196608u);
  EXPECT_EQ(memory_use().device.now, before.device.now);
}

}  // namespace
}  // namespace tessera::memory
