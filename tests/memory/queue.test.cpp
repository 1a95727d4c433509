#include "tessera/memory/queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::memory {
namespace {

using namespace std::chrono_literals;
constexpr auto soon = 30s;

class AnyQueue : public ::testing::TestWithParam<QueueKind> {
 protected:
  std::unique_ptr<Queue> make() const {
    return GetParam() == QueueKind::worker ? make_worker_queue("test") : make_inline_queue("test");
  }
};

TEST_P(AnyQueue, RunsInOrder) {
  std::vector<int> seen;
  auto const queue = make();
  EXPECT_EQ(queue->kind(), GetParam());
  EXPECT_EQ(queue->name(), "test");
  for (int i = 0; i < 1000; ++i) queue->submit([&seen, i] { seen.push_back(i); });
  queue->record().wait("test", soon);
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST_P(AnyQueue, StartsAfterAnotherQueuesEvent) {
  std::atomic<int> value{0};
  auto const producer = make_worker_queue("producer");
  auto const queue = make();
  producer->submit([&] {
    std::this_thread::sleep_for(20ms);  // what does not wait is too early
    value = 1;
  });
  queue->wait(producer->record());
  int seen = -1;
  queue->submit([&] { seen = value; });
  queue->record().wait("test", soon);
  EXPECT_EQ(seen, 1);
}

TEST_P(AnyQueue, AnErrorOfTheEventReachesTheWaitingQueue) {
  auto const producer = make_worker_queue("producer");
  producer->submit([] { throw DataError("broken"); });
  auto const failed = producer->record();
  auto const queue = make();
  bool ran = false;
  EXPECT_THROW(
      {
        queue->wait(failed);
        queue->submit([&] { ran = true; });
        queue->record().wait("test", soon);
      },
      DataError);
  EXPECT_FALSE(ran);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AnyQueue,
                         ::testing::Values(QueueKind::inline_host, QueueKind::worker),
                         [](auto const& info) {
                           return info.param == QueueKind::worker ? "Worker" : "Inline";
                         });

TEST(WorkerQueue, DoesNotBlockItsCaller) {
  auto const gate = make_worker_queue("gate"), queue = make_worker_queue("test");
  std::latch open(1);
  gate->submit([&] { open.wait(); });
  queue->wait(gate->record());
  auto const event = queue->record();
  EXPECT_FALSE(event.done());
  EXPECT_FALSE(event.wait_for(10ms));
  open.count_down();
  EXPECT_TRUE(event.wait_for(soon));
  EXPECT_TRUE(event.done());
}

TEST(WorkerQueue, AfterAnErrorLaterTasksAreDroppedAndEventsReportIt) {
  auto const queue = make_worker_queue("test");
  auto const before = queue->record();
  queue->submit([] { throw IoError("disk is full"); });
  auto const first = queue->record();
  bool ran = false;
  queue->submit([&] { ran = true; });
  auto const second = queue->record();
  before.wait("before", soon);
  EXPECT_THROW(first.wait("first", soon), IoError);
  EXPECT_THROW(second.wait("second", soon), IoError);
  EXPECT_TRUE(second.done()) << "an event with an error has happened";
  EXPECT_FALSE(ran);
}

TEST(WorkerQueue, DestructionFinishesWhatWasAdded) {
  int done = 0;
  Event last;
  {
    auto const queue = make_worker_queue("test");
    for (int i = 0; i < 100; ++i) queue->submit([&] { ++done; });
    last = queue->record();
  }
  EXPECT_EQ(done, 100);
  EXPECT_TRUE(last.done());
}

TEST(Event, DefaultHasHappened) {
  Event const event;
  EXPECT_TRUE(event.done());
  event.wait("nothing", 0ms);
}

TEST(Event, DeadlineNamesTheOperation) {
  auto const queue = make_worker_queue("test");
  std::latch open(1);
  queue->submit([&] { open.wait(); });
  auto const event = queue->record();
  try {
    event.wait("reduce_scatter number 7", 20ms);
    ADD_FAILURE() << "the deadline passed unseen";
  } catch (PeerLostError const& error) {
    EXPECT_NE(std::string(error.what()).find("reduce_scatter number 7"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("20 ms"), std::string::npos) << error.what();
  }
  open.count_down();
  event.wait("now", std::chrono::milliseconds::max());
}

}  // namespace
}  // namespace tessera::memory
