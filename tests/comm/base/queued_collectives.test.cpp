/// The worker thread of the host's collectives over a transport that only records: order, events,
/// errors and shutdown.
#include "base/queued_collectives.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

/// What the transport was called with; outlives it.
struct Calls {
  std::mutex mutex;
  std::vector<std::string> names;
  std::vector<std::thread::id> threads;
  bool abandoned = false;
  void add(Operation const& o) {
    std::lock_guard const lock(mutex);
    names.push_back(describe(o));
    threads.push_back(std::this_thread::get_id());
  }
};

class FakeTransport final : public Transport {
 public:
  explicit FakeTransport(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  ~FakeTransport() override { calls_->abandoned = abandoned(); }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  char const* name() const override { return "fake"; }
  std::shared_ptr<void> allocate(Operation const& o, std::string const& name,
                                 memory::Purpose) override {
    calls_->add(o);
    throw OutOfMemoryError("no memory for " + name);
  }
  void broadcast(Operation const& o, std::byte*) override { calls_->add(o); }
  void all_reduce(Operation const& o, std::byte*) override {
    calls_->add(o);
    throw PeerLostError(1, "rank 1 is lost");
  }
  void reduce(Operation const& o, std::byte*) override { calls_->add(o); }
  void reduce_scatter(Operation const& o, std::byte const*, Target const&) override {
    calls_->add(o);
  }
  void all_gather(Operation const& o, std::byte const*, std::byte*) override { calls_->add(o); }
  void scatter(Operation const& o, std::byte const*, std::byte*) override { calls_->add(o); }
  void gather(Operation const& o, std::byte const*, std::byte*) override { calls_->add(o); }
  void all_to_all(Operation const& o, std::byte const*, std::byte*) override { calls_->add(o); }
  void all_to_all(Operation const& o, std::byte const*, Parts const&, std::byte*,
                  Parts const&) override {
    calls_->add(o);
  }
  void send(Operation const& o, std::byte const*) override { calls_->add(o); }
  void receive(Operation const& o, std::byte*) override { calls_->add(o); }
  std::unique_ptr<Transport> split(Operation const& o, topology::RankGroup const& group) override {
    calls_->add(o);
    return group.color < 0 ? nullptr : std::make_unique<FakeTransport>(calls_);
  }
  void barrier(Operation const& o) override { calls_->add(o); }

 private:
  std::shared_ptr<Calls> calls_;
};

class QueuedCollectivesTest : public ::testing::Test {
 protected:
  std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  std::unique_ptr<QueuedCollectives> comm_ =
      std::make_unique<QueuedCollectives>(std::make_unique<FakeTransport>(calls_), 10s);
  std::vector<float> values_ = std::vector<float>(8);
  memory::TensorView data_{values_.data(), Dtype::fp32, {8}};
};

TEST_F(QueuedCollectivesTest, OperationsRunInCallOrderAfterTheirEvent) {
  auto const producer = memory::make_worker_queue("producer");
  producer->submit([&] {
    std::this_thread::sleep_for(20ms);  // what does not wait is too early
    calls_->add(Operation{});
  });
  auto const first = comm_->broadcast(data_, 1, producer->record());
  auto const second = comm_->reduce(data_, ReduceOp::sum, 0, {});
  comm_->wait(second);
  EXPECT_TRUE(first.event().done());
  EXPECT_EQ(
      calls_->names,
      (std::vector<std::string>{
          "barrier number 0", "broadcast number 1 (8 fp32 elements, 32 bytes per rank, root 1)",
          "reduce number 2 (8 fp32 elements, 32 bytes per rank, sum, root 0)"}));
}

TEST_F(QueuedCollectivesTest, AfterAnErrorLaterOperationsAreDroppedAndReportIt) {
  auto const failed = comm_->all_reduce(data_, ReduceOp::max, {});
  auto const dropped = comm_->broadcast(data_, 0, {});
  EXPECT_THROW(comm_->wait(failed), PeerLostError);
  EXPECT_THROW(comm_->wait(dropped), PeerLostError);
  EXPECT_THROW(comm_->barrier(), PeerLostError);
  EXPECT_EQ(calls_->names.size(), 1u);
  comm_.reset();
  EXPECT_TRUE(calls_->abandoned);
}

/// In the caller where nothing is in flight, else after what was called before.
TEST_F(QueuedCollectivesTest, SynchronousCallsRunInTheCallerInOrder) {
  std::vector<float> data(8);
  memory::TensorView const view(data.data(), Dtype::fp32, {8});
  auto const me = std::this_thread::get_id();
  {
    SynchronousCalls const synchronous;
    comm_->wait(comm_->broadcast(view, 0, {}));
    EXPECT_EQ(calls_->threads, std::vector{me});
  }
  EXPECT_FALSE(SynchronousCalls::active());
  auto const other = memory::make_worker_queue("other");
  std::atomic<bool> held{true};
  other->submit([&] {
    while (held) std::this_thread::yield();
  });
  auto const first = comm_->broadcast(view, 0, other->record());  // in flight
  SynchronousCalls const synchronous;
  auto const second = comm_->broadcast(view, 1, {});
  held = false;
  comm_->wait(first);
  comm_->wait(second);
  ASSERT_EQ(calls_->names.size(), 3u);
  EXPECT_NE(calls_->threads[1], me);
  EXPECT_EQ(calls_->threads[1], calls_->threads[2]);
  comm_->barrier();
  EXPECT_EQ(calls_->threads.back(), me);
}

TEST_F(QueuedCollectivesTest, AnErrorInTheCallerEndsLaterOperationsToo) {
  std::vector<float> data(8);
  memory::TensorView const view(data.data(), Dtype::fp32, {8});
  SynchronousCalls const synchronous;
  EXPECT_THROW(comm_->wait(comm_->all_reduce(view, ReduceOp::sum, {})), PeerLostError);
  for (int i = 0; i < 2; ++i)
    EXPECT_THROW(comm_->wait(comm_->broadcast(view, 0, {})), PeerLostError);
  EXPECT_EQ(calls_->names.size(), 1u) << "nothing runs after an error";
}

TEST_F(QueuedCollectivesTest, OutOfMemoryDoesNotStopTheWorker) {
  EXPECT_THROW((void)comm_->allocate("gradients", memory::Purpose::gradients, 64),
               OutOfMemoryError);
  comm_->barrier();
  EXPECT_EQ(calls_->names.size(), 2u);
  comm_.reset();
  EXPECT_FALSE(calls_->abandoned);
}

TEST_F(QueuedCollectivesTest, WrongArgumentsThrowInTheCaller) {
  EXPECT_THROW((void)comm_->broadcast(data_, 2, {}), InternalError);
  comm_->barrier();
  EXPECT_EQ(calls_->names, (std::vector<std::string>{"barrier number 2"}));
}

}  // namespace
}  // namespace tessera::comm::detail
