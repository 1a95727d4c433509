#include "tessera/memory/work_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/memory/device.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = PlannedWork::Kind;

TEST(WorkTrace, RecordsOrderOfAQueueAndEventsBetweenQueues) {
  WorkTrace trace;
  trace.add("compute", {.kind = Kind::product, .flops = 2.0});
  auto const computed = trace.record("compute");
  trace.wait("wire", computed);
  trace.add("wire", {.kind = Kind::collective, .bytes = 8, .name = "all_gather"});
  trace.add("compute", {.kind = Kind::product});
  trace.wait("compute", trace.record("wire"));
  trace.add("compute", {.kind = Kind::update, .bytes = 4});
  ASSERT_EQ(trace.work().size(), 4u);
  EXPECT_THAT(trace.queues(), ElementsAre("compute", "wire"));
  EXPECT_THAT(trace.work()[0].after, IsEmpty());
  EXPECT_THAT(trace.work()[1].after, ElementsAre(0));
  EXPECT_THAT(trace.work()[2].after, ElementsAre(0)) << "overlaps with the wire";
  EXPECT_THAT(trace.work()[3].after, ElementsAre(1, 2));
}

TEST(WorkTrace, AnEventAfterAWaitComesAfterWhatIsAwaited) {
  WorkTrace trace;
  trace.add("a", {.kind = Kind::copy});
  trace.wait("b", trace.record("a"));
  trace.wait("c", trace.record("b"));
  trace.add("c", {.kind = Kind::copy});
  ASSERT_EQ(trace.work().size(), 3u);
  EXPECT_EQ(trace.work()[1].kind, Kind::wait);
  EXPECT_THAT(trace.work()[1].after, ElementsAre(0));
  EXPECT_THAT(trace.work()[2].after, ElementsAre(1));
}

TEST(WorkTrace, AWaitOfTheHostDelaysAllLaterWork) {
  WorkTrace trace;
  trace.add("a", {.kind = Kind::copy});
  auto const event = trace.record("a");
  trace.add("b", {.kind = Kind::copy});
  EXPECT_TRUE(event.wait_for(std::chrono::milliseconds(0)));  // as the engine waits
  trace.add("b", {.kind = Kind::copy});
  trace.add("b", {.kind = Kind::copy});
  ASSERT_EQ(trace.work().size(), 5u);
  EXPECT_THAT(trace.work()[1].after, IsEmpty());
  EXPECT_THAT(trace.work()[2].after, ElementsAre(0)) << "the host";
  EXPECT_THAT(trace.work()[3].after, ElementsAre(1, 2));
  EXPECT_THAT(trace.work()[4].after, ElementsAre(3)) << "once per wait";
}

TEST(WorkTrace, OtherQueuesGetWorkWhenAnInlineQueueHasReachedIt) {
  WorkTrace trace;
  trace.run_inline("compute");
  trace.add("wire", {.kind = Kind::collective});
  trace.add("compute", {.kind = Kind::product});
  trace.add("wire", {.kind = Kind::collective});
  trace.wait("compute", trace.record("wire"));
  trace.add("other", {.kind = Kind::copy});
  ASSERT_EQ(trace.work().size(), 5u);
  EXPECT_THAT(trace.work()[2].after, ElementsAre(0, 1));
  EXPECT_THAT(trace.work()[3].after, ElementsAre(1, 2)) << "the inline queue blocks its caller";
  EXPECT_THAT(trace.work()[4].after, ElementsAre(3));
}

TEST(WorkTrace, JoinsEventsWithoutAnOrderBetweenJoins) {
  WorkTrace trace;
  trace.add("a", {});
  auto const a = trace.record("a");
  trace.add("b", {});
  auto const b = trace.record("b");
  (void)trace.join({a, b});
  (void)trace.join({b});
  EXPECT_THAT(trace.work()[2].after, ElementsAre(0, 1));
  EXPECT_THAT(trace.work()[3].after, ElementsAre(1));
  EXPECT_FALSE(trace.join({Event()}).state());
}

TEST(WorkTrace, QueuesOfAPlanRecordCopies) {
  BufferPlanning const planning;
  EXPECT_EQ(WorkTrace::active(), nullptr);
  auto const before = make_stream_queue("link");
  EXPECT_FALSE(before->record().state()) << "without a trace nothing is recorded";
  WorkTrace trace;
  EXPECT_EQ(WorkTrace::active(), &trace);
  auto const link = make_stream_queue("link");
  auto const worker = make_worker_queue("worker");
  EXPECT_EQ(link->kind(), QueueKind::stream);
  EXPECT_EQ(worker->kind(), QueueKind::worker);
  copy(*link, nullptr, nullptr, 100);
  worker->wait(link->record());
  copy_rows(*worker, {nullptr, 8}, {nullptr, 8}, 4, 10);
  ASSERT_EQ(trace.work().size(), 2u);
  EXPECT_EQ(trace.work()[0].bytes, 100u);
  EXPECT_EQ(trace.work()[1].bytes, 40u);
  EXPECT_THAT(trace.work()[1].after, ElementsAre(0));
}

TEST(ArenaBytes, AreThoseOfTheChunkThatARealArenaAllocates) {
  for (std::int64_t const bytes : {1, 5'000'000, 9'000'001, 40'000'000}) {
    Arena arena("test", Purpose::activations);
    (void)arena.allocate(Dtype::uint8, {bytes});
    EXPECT_EQ(arena_bytes(static_cast<std::size_t>(bytes)), arena.capacity()) << bytes;
  }
  EXPECT_EQ(arena_bytes(0), 0u);
}

}  // namespace
}  // namespace tessera::memory
