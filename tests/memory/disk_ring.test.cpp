#include "detail/disk_ring.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "faults.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::memory::detail {
namespace {

TEST(DiskRing, TellsWhyThereIsNone) {
  tessera_set_faults("call=ring,do=EACCES");
  std::string why;
  EXPECT_EQ(make_disk_ring("ring", {}, why), nullptr);
  tessera_set_faults("");
  EXPECT_TRUE(why == "Permission denied" || why == "this build has no liburing") << why;
}

/// A transfer starts after its events, and those after it end later.
TEST(DiskRing, KeepsTheOrderOfTransfers) {
  std::string why;
  auto const ring = make_disk_ring("ring", {.block_size = swap_alignment, .queue_depth = 2}, why);
  if (!ring) GTEST_SKIP() << why;
  SwapFile const file("values", {std::filesystem::path(::testing::TempDir())}, 4 * swap_alignment);
  Buffer memory("values", Purpose::workspace, std::size_t{4} << 20);
  std::promise<void> gate;
  auto const queue = make_worker_queue("gate");
  queue->submit([&] { gate.get_future().wait(); });
  auto* const values = static_cast<std::byte*>(memory.data());
  auto const write = ring->start(
      {&file, SwapFile::Access::write, 0, values, 4 * swap_alignment, {queue->record()}});
  auto const all = ring->record();
  EXPECT_FALSE(write.wait_for(std::chrono::milliseconds(50)));
  EXPECT_FALSE(all.done());
  gate.set_value();
  all.wait("transfers", std::chrono::seconds(60));
  EXPECT_TRUE(write.done());
}

}  // namespace
}  // namespace tessera::memory::detail
