/// Device memory compared with what the driver says, and the rules of its pool
/// (src/memory/detail/device_memory.hpp), without arguments over a device made of host memory,
/// which tries the tests themselves; with "device" on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "fake_device.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::memory {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t large = std::size_t{256} << 20;

std::size_t free_now() { return free_device_bytes(); }

void expect_taken(std::size_t before, std::size_t bytes) {
  EXPECT_NEAR(static_cast<double>(before) - static_cast<double>(free_now()),
              static_cast<double>(bytes), 0.01 * static_cast<double>(large));
}

TEST(DeviceMemory, LedgerAndDriverAgree) {
  { Buffer const first("makes the pool", Purpose::workspace, 1000, MemorySpace::device); }
  std::size_t const before = free_now(),
                    counted = MemoryTracker::of_device().current(Purpose::workspace);
  {
    Buffer const buffer("a quarter of a GiB", Purpose::workspace, large, MemorySpace::device);
    expect_taken(before, MemoryTracker::of_device().current(Purpose::workspace) - counted);
  }
  expect_taken(before, 0);  // what the pool keeps is free
  Buffer const again("once more", Purpose::workspace, large, MemorySpace::device);
  expect_taken(before, large);
}

TEST(DeviceMemory, WorkOfAFormerOwnerDoesNotReachTheNext) {
  auto const slow = make_stream_queue("slow"), other = make_stream_queue("other");
  Buffer const pattern("pattern", Purpose::data, large, MemorySpace::pinned);
  std::memset(pattern.data(), 0xAB, large);
  {
    Buffer const former("former", Purpose::data, large, MemorySpace::device);
    slow->submit([] { std::this_thread::sleep_for(100ms); });  // what does not wait is too early
    copy(*slow, former.data(), pattern.data(), large);
  }
  Buffer const next("next", Purpose::data, large, MemorySpace::device);
  std::vector<unsigned char> seen(large, 1);
  copy(*other, seen.data(), next.data(), large);
  other->record().wait("test", 60s);
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](unsigned char byte) { return byte == 0; }));
}

TEST(DeviceMemory, TheHostDoesNotWaitForStreams) {
  {
    Buffer const first("makes the pool", Purpose::data, 512, MemorySpace::device),
        pinned("pinned", Purpose::data, 512, MemorySpace::pinned);
  }
  auto const stream = make_stream_queue("stream");
  std::promise<void> open;
  stream->submit([&] { open.get_future().wait_for(10s); });  // ends also where the host waits
  auto const held_up = stream->record();
  { Buffer const buffer("freed", Purpose::data, 512, MemorySpace::device); }
  { Buffer const buffer("another size", Purpose::data, 4096, MemorySpace::device); }
  { Buffer const pinned("pinned again", Purpose::data, 512, MemorySpace::pinned); }
  EXPECT_FALSE(held_up.done());
  open.set_value();
  stream->record().wait("test", 60s);
}

TEST(DeviceMemory, ARefusalNamesWhatIsHeldAndLeavesTheDeviceUsable) {
  Buffer const weights("weights", Purpose::weights, large, MemorySpace::device);
  try {
    Buffer const buffer("too large", Purpose::activations,
                        2 * describe_device(Runtime::device()).total_bytes, MemorySpace::device);
    ADD_FAILURE() << "twice the device's memory was given out";
  } catch (OutOfMemoryError const& error) {
    EXPECT_THAT(error.what(),
                ::testing::AllOf(::testing::HasSubstr("for too large on the device"),
                                 ::testing::HasSubstr("weights 256.0 MiB"),
                                 ::testing::HasSubstr("--per_device_train_batch_size")));
    std::printf("%s\n", error.what());
  }
  Buffer const after("after", Purpose::data, large, MemorySpace::device);
  EXPECT_TRUE(on_device(after.data()));
}

}  // namespace
}  // namespace tessera::memory

int main(int argc, char** argv) {
  using namespace tessera;
  ::testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();  // needs no device
  std::optional<test::FakeDevice> fake;
  if (argc < 2 || std::string_view(argv[1]) != "device")
    fake.emplace().capacity = std::size_t{2} << 30;
  auto const found = memory::find_devices();
  if (found.count == 0) {
    std::printf("skipped: %s\n", found.reason.c_str());
    return 77;
  }
  memory::Runtime const runtime({1, 0});
  return RUN_ALL_TESTS();
}
