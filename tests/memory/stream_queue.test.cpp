/// Streams, events and CUDA graph capture over a fake device.
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
#include "tessera/memory/device.hpp"

namespace tessera::memory {
namespace {

using namespace std::chrono_literals;
constexpr auto soon = 30s;

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

TEST(StreamQueue, AHostQueueWaitsForAStreamAndAStreamForAHostQueue) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  auto const worker = make_worker_queue("worker");
  int value = 0;
  stream->submit([&] {
    std::this_thread::sleep_for(20ms);
    value = 1;
  });
  worker->wait(stream->record());
  worker->submit([&] { value *= 10; });
  stream->wait(worker->record());
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

/// cudaLaunchHostFunc: no call of the device in the function, which the end of a buffer makes.
TEST(StreamQueue, WhatATaskHoldsEndsOutsideOfTheStream) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  std::atomic<bool> ran{false};
  stream->submit([&ran, held = std::make_shared<Buffer>("held", Purpose::data, 512,
                                                        MemorySpace::device)] { ran = true; });
  auto const done = stream->record();
  done.wait("test", soon);
  EXPECT_TRUE(ran);
  stream->record();
  EXPECT_EQ(device.held, 0u);
}

TEST(StreamQueue, EventsAreReused) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  for (int i = 0; i < 100; ++i) stream->record().wait("test", soon);
  EXPECT_LE(device.events_made, 2);
}

TEST(StreamQueue, AnEventThatDoesNotHappenMeetsItsDeadline) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream");
  stream->submit([] { std::this_thread::sleep_for(100ms); });
  auto const event = stream->record();
  EXPECT_THROW(event.wait("a kernel", 5ms), PeerLostError);
  event.wait("a kernel", soon);
}

TEST(StreamGraphs, AreCapturedAndLaunchedInStreamOrder) {
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
    stream->run_as_graph("two", [&] { give("ghi"); });  // another topology: instantiated again
    stream->record().wait("test", soon);
    EXPECT_EQ(seen, "abcdef-ghi");
    EXPECT_EQ(device.graphs_made, 2);
    EXPECT_EQ(device.graphs_updated, 1);
  }
  EXPECT_EQ(device.graphs_held, 0);
}

/// A stream that is collected takes no part in events, and memory that its graph uses outlives the
/// launch.
TEST(StreamGraphs, MayAllocateAndFreeMemory) {
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

/// A captured stream takes no event, and what was captured has not begun.
TEST(StreamGraphs, ArePendingWorkWhileTheyAreCaptured) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream", StreamPriority::normal, GraphMode::capture);
  Buffer const buffer("some", Purpose::data, 512, MemorySpace::device);
  stream->run_as_graph("part", [] {});
  EXPECT_TRUE(wait_for_streams(30s));
  int const events = device.events_made;
  stream->run_as_graph("part", [&] {
    zero(*stream, buffer.data(), 512);
    EXPECT_FALSE(wait_for_streams(30s));
  });
  EXPECT_EQ(device.events_made, events);
  EXPECT_EQ(device.graphs_broken, 0);
  EXPECT_TRUE(wait_for_streams(30s));
}

TEST(StreamGraphs, RefuseEventsAndDiscardWorkThatFailed) {
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

/// What host functions hold is released once: after they have run, or with the capture or the
/// launch that failed.
TEST(StreamGraphs, ReleaseTheHostFunctionsOfAFailedCapture) {
  test::FakeDevice device;
  auto const stream = make_stream_queue("stream", StreamPriority::normal, GraphMode::capture);
  auto const held = std::make_shared<int>(0);
  auto const give = [&] { stream->submit([held] { ++*held; }); };
  stream->run_as_graph("part", give);
  EXPECT_THROW(stream->run_as_graph("part",
                                    [&] {
                                      give();
                                      give();
                                      throw InternalError("the kernel was refused");
                                    }),
               InternalError);
  device.refuses_graphs = true;
  EXPECT_THROW(stream->run_as_graph("part", give), OutOfMemoryError);
  device.refuses_graphs = false;
  stream->run_as_graph("part", give);
  stream->record().wait("test", soon);
  stream->record();
  EXPECT_EQ(*held, 2);
  EXPECT_EQ(held.use_count(), 1);
}
}  // namespace
}  // namespace tessera::memory
