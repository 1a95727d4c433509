/// Streams, events and device graph capture over a fake device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_device.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/launch_record.hpp"
#include "tessera/memory/stream_queue.hpp"

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
    std::this_thread::sleep_for(20ms);  // what does not wait is too early
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
    std::this_thread::sleep_for(20ms);  // what does not wait is too early
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
  std::latch open(1);
  stream->submit([&] { open.wait(); });
  auto const event = stream->record();
  EXPECT_THROW(event.wait("a kernel", 5ms), PeerLostError);
  open.count_down();
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

/// What host functions hold is released with the capture or the launch that failed, or when no
/// launch can call them any more.
TEST(StreamGraphs, ReleaseTheHostFunctionsOfAFailedCapture) {
  test::FakeDevice device;
  auto stream = make_stream_queue("stream", StreamPriority::normal, GraphMode::capture);
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
  EXPECT_EQ(held.use_count(), 2) << "the graph may be launched again";
  stream->run_as_graph("part", give);
  stream->record().wait("test", soon);
  stream->record();  // destroys what the stream has done with
  EXPECT_EQ(*held, 3);
  EXPECT_EQ(held.use_count(), 2) << "it holds the functions of its last capture only";
  stream.reset();  // first: else the new queue has another stream, which does not wait for this one
  stream = make_stream_queue("next");
  stream->record().wait("test", soon);  // the fake device has given it the same stream
  stream->record();
  EXPECT_EQ(held.use_count(), 1);
}

/// A kernel as those of src/kernels: recorded with everything that it is given, then launched.
struct Append {
  std::string* to;
  char letter;
  double factor;  ///< after 7 bytes that mean nothing

  static void launch(Queue& q, std::string& to, char letter, double factor = 1.0) {
    static int garbage = 0;
    Append rule;
    std::memset(static_cast<void*>(&rule), ++garbage, sizeof rule);
    rule.to = &to;
    rule.letter = letter;
    rule.factor = factor;
    if (leave_out<Append>(q, std::int64_t{1}, rule)) return;
    q.submit([rule] { rule.to->append(rule.factor == 1.0 ? 1 : 2, rule.letter); });
  }
};

class ReplayedGraphs : public ::testing::Test {
 protected:
  void run(char const* letters, std::string& to, double factor = 1.0) {
    stream->run_as_graph("work", [&] {
      ++calls;
      for (char const* c = letters; *c; ++c) Append::launch(*stream, to, *c, factor);
    });
  }
  std::string const& seen() {
    stream->record().wait("test", soon);
    return text;
  }
  GraphLaunches launches() const { return graph_launches_of_process() - before; }

  test::FakeDevice device;
  std::unique_ptr<Queue> stream =
      make_stream_queue("stream", StreamPriority::normal, GraphMode::capture);
  GraphLaunches before = graph_launches_of_process();
  std::string text, other;
  int calls = 0;
};

TEST_F(ReplayedGraphs, AreLaunchedWithoutCaptureWhenAllOperandsAreTheSame) {
  device.jitter_us = 50;
  for (int i = 0; i < 5; ++i) run("ab", text);
  EXPECT_EQ(seen(), "ababababab");
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(launches(), (GraphLaunches{.replayed = 3, .captured = 1, .separate = 1}));
  EXPECT_EQ(device.graphs_replayed, 3);
  EXPECT_EQ(device.graphs_made, 1);
}

TEST_F(ReplayedGraphs, AreCapturedWhenAnyOperandDiffers) {
  for (int i = 0; i < 3; ++i) run("ab", text);
  EXPECT_EQ(launches().replayed, 1);
  run("ac", text);  // a scalar of the last kernel
  EXPECT_EQ(seen(), "abababac");
  run("ac", other);  // an address
  EXPECT_EQ(seen(), "abababac");
  EXPECT_EQ(other, "ac");
  run("ac", other, 2.0);   // a scalar after padding
  run("acd", other, 2.0);  // one more kernel
  run("ac", other, 2.0);   // one fewer
  seen();
  EXPECT_EQ(other, "acaaccaaccddaacc");
  EXPECT_EQ(launches().replayed, 1);
  EXPECT_EQ(launches().total(), 8);
}

TEST_F(ReplayedGraphs, AreSeveralWhereOperandsAlternate) {
  for (int i = 0; i < 4; ++i) {
    run("ab", text);
    run("cd", text);
  }
  EXPECT_EQ(seen(), "abcdabcdabcdabcd");
  EXPECT_GT(launches().replayed, 0);
  EXPECT_EQ(device.graphs_held, 2);
}

TEST_F(ReplayedGraphs, AreNeverOfWorkWithALaunchThatIsNotRecorded) {
  for (char const letter : std::string("bcdef"))
    stream->run_as_graph("work", [&] {
      Append::launch(*stream, text, 'a');
      stream->submit([this, letter] { text += letter; });
    });
  EXPECT_EQ(seen(), "abacadaeaf");
  EXPECT_EQ(launches().replayed, 0);
  EXPECT_EQ(device.graphs_replayed, 0);
}

TEST_F(ReplayedGraphs, AreNeverOfWorkWithOperandsThatAreNoPlainBytes) {
  for (int i = 0; i < 4; ++i)
    stream->run_as_graph("work", [&] {
      std::string const operand(1, static_cast<char>('a' + i));
      if (leave_out<std::string>(*stream, operand)) return;
      stream->submit([this, operand] { text += operand; });
    });
  EXPECT_EQ(seen(), "abcd");
  EXPECT_EQ(launches().replayed, 0);
}

TEST_F(ReplayedGraphs, CopyWhatIsOnTheDevice) {
  Buffer const from("from", Purpose::data, 64, MemorySpace::device),
      to("to", Purpose::data, 64, MemorySpace::device);
  Buffer const pinned("pinned", Purpose::data, 64, MemorySpace::pinned);
  auto const bytes_of = [](Buffer const& buffer) { return static_cast<char*>(buffer.data()); };
  for (char i = 1; i < 6; ++i) {
    seen();
    bytes_of(from)[0] = bytes_of(from)[32] = i;
    bytes_of(pinned)[0] = i;
    stream->run_as_graph("on the device", [&] {
      zero(*stream, to.data(), 64);
      copy(*stream, to.data(), from.data(), 16);
      copy_rows(*stream, {bytes_of(to) + 16, 16}, {bytes_of(from), 32}, 1, 2);
    });
    stream->run_as_graph("from the host",
                         [&] { copy(*stream, bytes_of(to) + 48, pinned.data(), 1); });
    seen();
    EXPECT_EQ(bytes_of(to)[0], i);
    EXPECT_EQ(bytes_of(to)[16], i);
    EXPECT_EQ(bytes_of(to)[32], i);
    EXPECT_EQ(bytes_of(to)[48], i);
    bytes_of(to)[1] = 1;
  }
  EXPECT_EQ(launches().replayed, 3) << "those on the device only";
}

TEST_F(ReplayedGraphs, AreNotLaunchedWhenTheComparisonThrows) {
  for (int i = 0; i < 3; ++i) run("a", text);
  EXPECT_THROW(stream->run_as_graph("work",
                                    [&] {
                                      Append::launch(*stream, text, 'a');
                                      throw InternalError("refused");
                                    }),
               InternalError);
  run("a", text);
  EXPECT_EQ(seen(), "aaaa");
  EXPECT_EQ(LaunchRecord::of(*stream), nullptr);
}
}  // namespace
}  // namespace tessera::memory
