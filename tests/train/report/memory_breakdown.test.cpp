#include "tessera/train/report/used_paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/memory/buffer.hpp"

namespace tessera::train {
namespace {

TEST(MemoryBreakdown, NamesPurposesWithCurrentAndPeakBytes) {
  auto const before = memory_text();
  EXPECT_THAT(before, ::testing::Not(::testing::HasSubstr("optimizer_state")));
  { memory::Buffer const gone("m", memory::Purpose::optimizer_state, 2 << 20); }
  memory::Buffer const kept("m", memory::Purpose::optimizer_state, 1 << 20);
  EXPECT_THAT(memory_text(), ::testing::HasSubstr(" 1.0 MiB / 2.0 MiB"));
}

}  // namespace
}  // namespace tessera::train
