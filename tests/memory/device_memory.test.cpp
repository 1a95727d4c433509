/// Stream-ordered device memory and the cache of pinned memory over a fake device.
#include "detail/device_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "fake_device.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::memory {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
constexpr auto soon = 30s;

std::string error_of(auto&& call) {
  try {
    call();
  } catch (OutOfMemoryError const& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceBuffer, IsZeroedCountedByTheDeviceTrackerAndFreed) {
  test::FakeDevice device;
  std::size_t const host = MemoryTracker::of_process().current(Purpose::weights),
                    before = MemoryTracker::of_device().current(Purpose::weights);
  {
    Buffer const buffer("device.zeroed", Purpose::weights, 1000, MemorySpace::device);
    EXPECT_TRUE(on_device(buffer.data()));
    EXPECT_FALSE(on_device(&host));
    EXPECT_EQ(MemoryTracker::of_device().current(Purpose::weights), before + 1000);
    EXPECT_EQ(MemoryTracker::of_process().current(Purpose::weights), host);
    make_stream_queue("later")->record().wait("test", soon);
    for (int i = 0; i < 1000; ++i)
      ASSERT_EQ(static_cast<unsigned char const*>(buffer.data())[i], 0) << i;
  }
  EXPECT_EQ(device.held, 0u);
  EXPECT_EQ(MemoryTracker::of_device().current(Purpose::weights), before);
}

/// Libraries allocate outside the pool, which keeps what was freed.
TEST(DeviceBuffer, UnusedMemoryOfThePoolGoesBackToTheDeviceForLibraries) {
  test::FakeDevice device;
  std::size_t const bytes = device.capacity / 4 * 3;
  trim_device_pool();
  EXPECT_EQ(device.trims, 0) << "there is no pool yet";
  auto const kept = Buffer("device.kept", Purpose::weights, 1000, MemorySpace::device);
  (void)Buffer("device.unused", Purpose::weights, bytes, MemorySpace::device);
  EXPECT_EQ(device.allocate_apart(bytes), nullptr);
  trim_device_pool();
  void* const apart = device.allocate_apart(bytes);
  EXPECT_NE(apart, nullptr);
  device.free_apart(apart);
  EXPECT_EQ(device.held, 1000u);
}

TEST(DeviceBuffer, OutOfMemoryNamesTheRequestAndTheBytesByPurpose) {
  test::FakeDevice device;
  Buffer const weights("device.weights", Purpose::weights, std::size_t{40} << 20,
                       MemorySpace::device);
  Buffer const states("device.states", Purpose::optimizer_state, std::size_t{8} << 20,
                      MemorySpace::device);
  std::string const text = error_of([] {
    Buffer("device.activations", Purpose::activations, std::size_t{32} << 20, MemorySpace::device);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("32.0 MiB for device.activations"),
                          HasSubstr("16.0 MiB of its 64.0 MiB are free"),
                          HasSubstr("weights 40.0 MiB, optimizer_state 8.0 MiB"),
                          HasSubstr("--per_device_train_batch_size")));
}

TEST(DeviceBuffer, PinnedMemoryIsHostMemory) {
  test::FakeDevice device;
  std::size_t const before = MemoryTracker::of_process().current(Purpose::data);
  Buffer const buffer("pinned", Purpose::data, 4096, MemorySpace::pinned);
  EXPECT_EQ(device.pinned, 4096u);
  EXPECT_EQ(MemoryTracker::of_process().current(Purpose::data), before + 4096);
  EXPECT_EQ(static_cast<unsigned char const*>(buffer.data())[4095], 0);
}

/// The pool's stream frees after what the stream was given, and zeroes after that.
TEST(DeviceBuffer, WorkOfAPreviousOwnerDoesNotReachTheNext) {
  test::FakeDevice device;
  auto const slow = make_stream_queue("slow"), other = make_stream_queue("other");
  void* previous = nullptr;
  {
    Buffer const buffer("previous", Purpose::data, 512, MemorySpace::device);
    previous = buffer.data();
    slow->submit([previous] { std::memset(previous, 0xCD, 512); });
    slow->record().wait("test", soon);
    slow->submit([previous] {
      std::this_thread::sleep_for(100ms);  // what does not wait is too early
      std::memset(previous, 0xAB, 512);
    });
  }
  Buffer const next("next", Purpose::data, 512, MemorySpace::device);
  ASSERT_EQ(next.data(), previous)
      << "the memory was not used again, so that this test shows nothing";
  EXPECT_EQ(device.reused, 1);
  std::vector<unsigned char> seen(512, 1);
  copy(*other, seen.data(), next.data(), 512);
  other->record().wait("test", soon);
  EXPECT_EQ(seen, std::vector<unsigned char>(512, 0));
  slow->record().wait("test", soon);
  EXPECT_EQ(*static_cast<unsigned char const*>(next.data()), 0)
      << "the previous owner's work came after the next owner's";
}

/// A buffer waits for its work even when its queue is gone first.
TEST(DeviceBuffer, WaitsForWorkOfAClosedStream) {
  test::FakeDevice device;
  Buffer first("first", Purpose::data, 512, MemorySpace::device);
  void* const data = first.data();
  std::atomic<bool> written{false};
  auto slow = make_stream_queue("slow");
  slow->submit([&, data] {
    std::this_thread::sleep_for(50ms);  // what does not wait is too early
    std::memset(data, 0xAB, 512);
    written = true;
  });
  slow.reset();
  first = Buffer();
  Buffer const next("next", Purpose::data, 512, MemorySpace::device);
  make_stream_queue("later")->record().wait("test", soon);
  EXPECT_TRUE(written);
  EXPECT_EQ(*static_cast<unsigned char const*>(next.data()), 0);
}

/// Nothing is waited for, neither by a free nor by an allocation that there is room for.
TEST(DeviceBuffer, TheHostDoesNotWaitForStreams) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  std::promise<void> gate;
  stream->submit([opened = gate.get_future().share()] { opened.wait(); });
  auto const held_up = stream->record();
  { Buffer const buffer("first", Purpose::data, 512, MemorySpace::device); }
  Buffer const same("same size", Purpose::data, 512, MemorySpace::device),
      other("another size", Purpose::data, 1024, MemorySpace::device);
  { Buffer const pinned("pinned", Purpose::data, 512, MemorySpace::pinned); }
  EXPECT_FALSE(held_up.done());
  gate.set_value();
  stream->record().wait("test", soon);
}

/// Memory that is cached for another size class is freed before a request fails.
TEST(DeviceBuffer, FreedMemoryOfOtherSizesIsAvailable) {
  test::FakeDevice device;
  { Buffer const buffer("first", Purpose::data, std::size_t{40} << 20, MemorySpace::device); }
  Buffer const larger("larger", Purpose::data, std::size_t{60} << 20, MemorySpace::device);
  EXPECT_EQ(device.trims, 1);
  EXPECT_EQ(device.held, std::size_t{60} << 20);
}

TEST(PinnedBuffer, IsReusedWhenNoStreamUsesItAnyMore) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  std::size_t const before = MemoryTracker::of_process().current_total();
  std::promise<void> gate;
  void* first = nullptr;
  {
    Buffer const buffer("first", Purpose::data, 5000, MemorySpace::pinned);
    first = buffer.data();
    std::memset(first, 7, 5000);
    stream->submit([opened = gate.get_future().share()] { opened.wait(); });
  }
  EXPECT_EQ(MemoryTracker::of_process().current_total(), before + 8192)
      << "cached memory is counted";
  {
    Buffer const meanwhile("meanwhile", Purpose::data, 5000, MemorySpace::pinned);
    EXPECT_NE(meanwhile.data(), first) << "the stream may still use it";
    EXPECT_EQ(device.allocations, 2);
  }
  gate.set_value();
  stream->record().wait("test", soon);
  make_stream_queue("after the pool's")->record().wait("test", soon);
  Buffer const again("again", Purpose::data, 6000, MemorySpace::pinned),
      and_again("and again", Purpose::data, 7000, MemorySpace::pinned);
  EXPECT_EQ(device.allocations, 2);
  EXPECT_EQ(static_cast<unsigned char const*>(again.data())[4999] +
                static_cast<unsigned char const*>(and_again.data())[4999],
            0);
  EXPECT_EQ(MemoryTracker::of_process().current_total(), before + 13000);
}

TEST(PinnedBuffer, TheCacheIsBounded) {
  test::FakeDevice device;
  std::size_t const each = std::size_t{64} << 20;
  {
    std::vector<Buffer> many;
    for (int i = 0; i < 6; ++i)
      many.emplace_back("pinned", Purpose::data, each, MemorySpace::pinned);
    EXPECT_EQ(device.pinned, 6 * each);
  }
  EXPECT_EQ(device.pinned, std::size_t{256} << 20);
  { Buffer const large("large", Purpose::data, std::size_t{300} << 20, MemorySpace::pinned); }
  EXPECT_EQ(device.pinned, std::size_t{256} << 20);
}
}  // namespace
}  // namespace tessera::memory
