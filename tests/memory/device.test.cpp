#include "tessera/memory/device.hpp"

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

namespace tessera::memory {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
constexpr auto soon = 30s;

std::string refusal_of(auto&& call) {
  try {
    call();
  } catch (OutOfMemoryError const& error) {
    return error.what();
  }
  return "";
}

TEST(StreamQueue, RunsInOrderAndStartsAfterAnotherStreamsEvent) {
  test::FakeDevice device;
  auto const first = make_stream_queue("first"),
             second = make_stream_queue("second", StreamPriority::high);
  EXPECT_EQ(first->kind(), QueueKind::stream);
  EXPECT_NE(first->native_stream(), nullptr);
  EXPECT_EQ(memory_space_of(*first), MemorySpace::device);
  std::vector<int> seen;
  first->submit([&] {
    std::this_thread::sleep_for(20ms);
    seen.push_back(1);
  });
  first->submit([&] { seen.push_back(2); });
  second->wait(first->record());
  second->submit([&] { seen.push_back(3); });
  second->record().wait("test", soon);
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
}

TEST(StreamQueue, AHostLaneWaitsForAStreamAndAStreamForAHostLane) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  auto const lane = make_worker_queue("lane");
  int value = 0;
  stream->submit([&] {
    std::this_thread::sleep_for(20ms);
    value = 1;
  });
  lane->wait(stream->record());
  lane->submit([&] { value *= 10; });
  stream->wait(lane->record());
  stream->submit([&] { value += 5; });
  stream->record().wait("test", soon);
  EXPECT_EQ(value, 15);
}

TEST(StreamQueue, AnErrorOfHostWorkDropsLaterHostWorkAndReachesEveryLaterEvent) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  bool ran = false;
  stream->submit([] { throw DataError("broken"); });
  stream->submit([&] { ran = true; });
  auto const event = stream->record();
  EXPECT_THROW(event.wait("test", soon), DataError);
  EXPECT_THROW(stream->record().wait("test", soon), DataError);
  EXPECT_FALSE(ran);
}

TEST(StreamQueue, EventsAreUsedAgain) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  for (int i = 0; i < 100; ++i) stream->record().wait("test", soon);
  EXPECT_LE(device.events_made, 2);
}

TEST(StreamQueue, AnEventThatDoesNotComeMeetsItsDeadline) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  stream->submit([] { std::this_thread::sleep_for(100ms); });
  auto const event = stream->record();
  EXPECT_THROW(event.wait("a kernel", 5ms), PeerLostError);
  event.wait("a kernel", soon);
}

TEST(StreamGraphs, CollectWhatIsGivenAndRunItInTheStreamsOrder) {
  test::FakeDevice device;
  {
    auto const stream = make_stream_queue("stream", StreamPriority::normal, GraphMode::capture);
    std::string seen;
    auto const give = [&](char const* letters) {
      for (char const* c = letters; *c; ++c)
        stream->submit([&seen, letter = *c] { seen += letter; });
    };
    stream->run_as_graph("two", [&] { give("ab"); });
    for (char const* letters : {"cd", "ef"}) stream->run_as_graph("two", [&] { give(letters); });
    give("-");
    stream->run_as_graph("two", [&] { give("ghi"); });  // another form: made anew
    stream->record().wait("test", soon);
    EXPECT_EQ(seen, "abcdef-ghi");
    EXPECT_EQ(device.graphs_made, 2);
    EXPECT_EQ(device.graphs_updated, 1);
  }
  EXPECT_EQ(device.graphs_held, 0);
}

/// A stream that is collected takes no part in events, and memory that its graph uses outlives the
/// launch.
TEST(StreamGraphs, MayTakeAndGiveBackMemory) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream", StreamPriority::normal, GraphMode::capture);
  Buffer const kept("kept", Purpose::data, 512, MemorySpace::pinned);
  for (int pass = 0; pass < 3; ++pass)
    stream->run_as_graph("part", [&] {
      std::size_t const before = device.held;
      {
        Buffer const taken("taken", Purpose::data, 512, MemorySpace::device),
            pinned("pinned", Purpose::data, 512, MemorySpace::pinned);
        copy(*stream, kept.data(), taken.data(), 512);
      }
      if (pass > 0) {
        EXPECT_EQ(device.held, before + 512) << "freed before its graph was given to the stream";
      }
    });
  stream->record().wait("test", soon);
  EXPECT_EQ(std::memcmp(kept.data(), std::vector<char>(512, 0).data(), 512), 0);
  EXPECT_EQ(device.graphs_broken, 0);
  EXPECT_EQ(device.held, 0u);
}

TEST(StreamGraphs, RefuseOrderWithOtherStreamsAndForgetWorkThatFailed) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream", StreamPriority::normal, GraphMode::capture);
  int ran = 0;
  stream->run_as_graph("part", [] {});
  EXPECT_THROW(stream->run_as_graph("part",
                                    [&] {
                                      stream->submit([&] { ++ran; });
                                      stream->record();
                                    }),
               InternalError);
  stream->submit([&] { ran += 10; });
  stream->record().wait("test", soon);
  EXPECT_EQ(ran, 10);
}

TEST(DeviceBuffer, IsZeroedCountedInItsOwnLedgerAndGivenBack) {
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

TEST(DeviceBuffer, ARefusalNamesWhatWasAskedAndWhatIsHeldForWhat) {
  test::FakeDevice device;
  Buffer const weights("device.weights", Purpose::weights, std::size_t{40} << 20,
                       MemorySpace::device);
  Buffer const states("device.states", Purpose::optimizer_state, std::size_t{8} << 20,
                      MemorySpace::device);
  std::string const text = refusal_of([] {
    Buffer("device.activations", Purpose::activations, std::size_t{32} << 20, MemorySpace::device);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("33554432 bytes for device.activations"),
                          HasSubstr("16777216 of its 67108864 bytes are free"),
                          HasSubstr("weights 40 MiB, optimizer_state 8 MiB"),
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
TEST(DeviceBuffer, WorkOfAFormerOwnerDoesNotReachTheNext) {
  test::FakeDevice device;
  auto const slow = make_stream_queue("slow"), other = make_stream_queue("other");
  void* former = nullptr;
  {
    Buffer const buffer("former", Purpose::data, 512, MemorySpace::device);
    former = buffer.data();
    slow->submit([former] { std::memset(former, 0xCD, 512); });
    slow->record().wait("test", soon);
    slow->submit([former] {
      std::this_thread::sleep_for(100ms);
      std::memset(former, 0xAB, 512);
    });
  }
  Buffer const next("next", Purpose::data, 512, MemorySpace::device);
  ASSERT_EQ(next.data(), former)
      << "the memory was not used again, so that this test shows nothing";
  EXPECT_EQ(device.reused, 1);
  std::vector<unsigned char> seen(512, 1);
  copy(*other, seen.data(), next.data(), 512);
  other->record().wait("test", soon);
  EXPECT_EQ(seen, std::vector<unsigned char>(512, 0));
  slow->record().wait("test", soon);
  EXPECT_EQ(*static_cast<unsigned char const*>(next.data()), 0)
      << "the former owner's work came after the next owner's";
}

/// Also when its queue is gone before the buffer is.
TEST(DeviceBuffer, WorkOfAClosedStreamIsWaitedForToo) {
  test::FakeDevice device;
  Buffer first("first", Purpose::data, 512, MemorySpace::device);
  void* const data = first.data();
  std::atomic<bool> written{false};
  auto slow = make_stream_queue("slow");
  slow->submit([&, data] {
    std::this_thread::sleep_for(50ms);
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

/// Memory that is kept for blocks of another size is given back before a request fails.
TEST(DeviceBuffer, FreedMemoryOfOtherSizesIsNotMissing) {
  test::FakeDevice device;
  { Buffer const buffer("first", Purpose::data, std::size_t{40} << 20, MemorySpace::device); }
  Buffer const larger("larger", Purpose::data, std::size_t{60} << 20, MemorySpace::device);
  EXPECT_EQ(device.trims, 1);
  EXPECT_EQ(device.held, std::size_t{60} << 20);
}

TEST(PinnedBuffer, IsUsedAgainWhenNoStreamUsesItAnyMore) {
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
  EXPECT_EQ(MemoryTracker::of_process().current_total(), before + 8192) << "kept memory is counted";
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

TEST(PinnedBuffer, NoMoreIsKeptThanABound) {
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

TEST(DeviceArena, KeepsItsBlocksBetweenSteps) {
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

TEST(Copies, RunInTheQueuesOrderBetweenAnyPlaces) {
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

TEST(Devices, ABuildWithoutCudaSaysSo) {
  if (built_with_cuda()) GTEST_SKIP() << "this build has CUDA";
  EXPECT_EQ(find_devices().count, 0);
  EXPECT_THAT(find_devices().reason, HasSubstr("this build has no CUDA"));
  EXPECT_THROW(make_stream_queue("stream"), ConfigError);
  EXPECT_THROW(Buffer("device", Purpose::data, 64, MemorySpace::device), ConfigError);
}

}  // namespace
}  // namespace tessera::memory
