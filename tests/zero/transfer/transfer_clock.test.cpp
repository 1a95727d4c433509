/// Times between events, with a clock whose readings are given.
#include "transfer/transfer_clock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <utility>

namespace tessera::zero::detail {
namespace {

Now readings(std::vector<double> values) {
  return
      [values = std::move(values), next = std::size_t{0}]() mutable { return values.at(next++); };
}

TEST(TransferClock, AddsUpTheTimesOfEachIndex) {
  TransferClock clock(3, readings({1, 4, 4, 5, 10, 12}));
  clock.add(0, {}, {});
  clock.add(2, {}, {});
  clock.add(0, {}, {});
  auto const& measured = clock.finish();
  EXPECT_EQ(measured.seconds, (std::vector<double>{5, 0, 1}));
  EXPECT_EQ(measured.count, (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(measured.mean(0), 2.5);
  EXPECT_EQ(measured.mean(1), 0.0);
}

/// The transfer ends when its event has happened, not before.
TEST(TransferClock, ReadsTheTimeAfterTheEndOfTheTransfer) {
  auto const queue = memory::make_worker_queue("transfers");
  std::atomic<double> time = 0.0;
  std::promise<void> begun, ends;
  auto const end = [&] {
    queue->submit([&] {
      ends.get_future().wait();
      time = 3.0;
    });
    return queue->record();
  }();
  bool is_first = true;
  TransferClock clock(1, [&] {
    double const now = time;  // before the transfer may end
    if (std::exchange(is_first, false)) begun.set_value();
    return now;
  });
  clock.add(0, {}, end);
  begun.get_future().wait();
  ends.set_value();
  EXPECT_EQ(clock.finish().seconds[0], 3.0);
}

/// Ranks that are lost leave events that never happen.
TEST(TransferClock, IsDestroyedWhileATransferNeverEnds) {
  auto const queue = memory::make_worker_queue("transfers");
  std::promise<void> ends;
  queue->submit([&] { ends.get_future().wait(); });
  {
    TransferClock clock(1, steady_now());
    clock.add(0, {}, queue->record());
  }
  ends.set_value();
}

}  // namespace
}  // namespace tessera::zero::detail
