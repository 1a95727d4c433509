#include "transfer/buffer_pool.hpp"

#include <chrono>
#include <latch>

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

TEST(BufferPool, ReusesTheSmallestBufferThatFits) {
  auto const comm = comm::make_loopback();
  BufferPool pool("test", Dtype::fp32, *comm);
  auto const large = pool.take(100), small = pool.take(60);
  EXPECT_EQ(pool.bytes(), 640u);
  EXPECT_EQ(large.data.numel(), 100);
  pool.give_back(large, {});
  pool.give_back(small, {});
  EXPECT_EQ(pool.take(55).data.data(), small.data.data());
  EXPECT_EQ(pool.take(55).data.data(), large.data.data()) << "100 is at most twice 55";
  EXPECT_EQ(pool.bytes(), 640u) << "nothing was allocated";
}

TEST(BufferPool, DoesNotWasteABufferOfMoreThanTwiceTheSize) {
  auto const comm = comm::make_loopback();
  BufferPool pool("test", Dtype::bf16, *comm);
  auto const large = pool.take(100);
  pool.give_back(large, {});
  EXPECT_NE(pool.take(49).data.data(), large.data.data());
  EXPECT_EQ(pool.bytes(), 298u);
  EXPECT_NE(pool.take(101).data.data(), large.data.data()) << "too small";
  EXPECT_EQ(pool.take(50).data.data(), large.data.data());
}

/// Free and new buffers wait for the delay, buffers given back later for their own event.
TEST(BufferPool, DelaysFreeBuffers) {
  auto const comm = comm::make_loopback();
  std::latch open(1);
  auto const queue = memory::make_worker_queue("queue");
  BufferPool pool("test", Dtype::fp32, *comm);
  pool.give_back(pool.take(10), {});
  queue->submit([&] { open.wait(); });
  pool.delay_free(queue->record());
  auto const reused = pool.take(10), fresh = pool.take(10);
  EXPECT_FALSE(reused.ready.done());
  EXPECT_FALSE(fresh.ready.done());
  pool.give_back(reused, {});
  EXPECT_TRUE(pool.take(10).ready.done());
  open.count_down();
}

/// So each step begins with the same order, whatever the last one has left.
TEST(BufferPool, TakesDelayedBuffersInTheOrderOfTheirAllocation) {
  auto const comm = comm::make_loopback();
  BufferPool pool("test", Dtype::fp32, *comm);
  auto const first = pool.take(10), second = pool.take(10), third = pool.take(10);
  for (auto const& entry : {third, first, second}) pool.give_back(entry, {});
  pool.delay_free({});
  EXPECT_EQ(pool.take(10).data.data(), first.data.data());
  EXPECT_EQ(pool.take(10).data.data(), second.data.data());
}

}  // namespace
}  // namespace tessera::zero::detail
