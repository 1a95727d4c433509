#include "tessera/memory/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "fake_device.hpp"
#include "tessera/core/error.hpp"

namespace tessera::memory {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
constexpr auto soon = 30s;

TEST(DeviceArena, KeepsItsChunksBetweenSteps) {
  test::FakeDevice device;
  Arena arena("device.arena", Purpose::activations, MemorySpace::device);
  for (int step = 0; step < 5; ++step) {
    auto const mark = arena.mark();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.allocate(Dtype::bf16, {3}).data()) % 256, 0u);
    EXPECT_EQ(
        reinterpret_cast<std::uintptr_t>(arena.allocate(Dtype::fp32, {1000, 1000}).data()) % 256,
        0u);
    arena.rollback(mark);
  }
  EXPECT_EQ(device.allocations, 1);
}

TEST(Copies, RunInQueueOrderBetweenAllMemorySpaces) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  Buffer const there("there", Purpose::data, 64, MemorySpace::device),
      elsewhere("elsewhere", Purpose::data, 64, MemorySpace::device);
  std::vector<unsigned char> const sent(64, 7);
  std::vector<unsigned char> received(64, 0);
  copy(*stream, there.data(), sent.data(), 64);
  copy(*stream, elsewhere.data(), there.data(), 64);
  zero(*stream, there.data(), 32);
  copy(*stream, received.data(), elsewhere.data(), 64);
  stream->record().wait("test", soon);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(static_cast<unsigned char const*>(there.data())[31], 0);
  EXPECT_EQ(static_cast<unsigned char const*>(there.data())[32], 7);
}

TEST(Copies, OfRowsLeaveWhatIsBetweenThem) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  for (bool const on_stream : {true, false}) {
    auto const inline_queue = make_inline_queue("inline");
    auto& queue = on_stream ? *stream : *inline_queue;
    std::vector<int> const from{1, 2, 9, 3, 4, 9, 5, 6, 9};
    std::vector<int> to(12, 7);
    copy_rows(queue, {to.data() + 1, 4 * sizeof(int)}, {from.data(), 3 * sizeof(int)},
              2 * sizeof(int), 3);
    queue.record().wait("test", soon);
    EXPECT_EQ(to, (std::vector<int>{7, 1, 2, 7, 7, 3, 4, 7, 7, 5, 6, 7}));
  }
}

/// Large units on few ranks: a device copies rows in one operation up to its largest pitch.
TEST(Copies, OfRowsMayLieFurtherApartThanADeviceCopiesAtOnce) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  constexpr std::size_t stride = std::size_t{1} << 31;
  void* const room = mmap(nullptr, 2 * stride, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  auto* const rows = static_cast<char*>(room);
  std::memcpy(rows, "first", 6);
  std::memcpy(rows + stride, "second", 7);
  char packed[2][8] = {};
  copy_rows(*stream, {packed, 8}, {rows, stride}, 8, 2);
  stream->record().wait("test", soon);
  EXPECT_STREQ(packed[0], "first");
  EXPECT_STREQ(packed[1], "second");
  munmap(room, 2 * stride);
}

TEST(Devices, ABuildWithoutGpuSupportSaysSo) {
  if (built_with_gpu()) GTEST_SKIP() << "this build has GPU support";
  EXPECT_EQ(find_devices().count, 0);
  EXPECT_THAT(find_devices().reason, HasSubstr("this build has no GPU support"));
  EXPECT_THROW(make_stream_queue("stream"), ConfigError);
  EXPECT_THROW(Buffer("device", Purpose::data, 64, MemorySpace::device), ConfigError);
}
}  // namespace
}  // namespace tessera::memory
