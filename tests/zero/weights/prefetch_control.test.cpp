/// The choice of the prefetch depth over passes, with given times.
#include "weights/prefetch_control.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::zero::detail {
namespace {

constexpr std::size_t acquisitions = 6;

std::vector<UnitIndex> order_of(std::size_t count = acquisitions) {
  std::vector<UnitIndex> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(UnitIndex(static_cast<int>(i)));
  return out;
}

/// Each computation takes a second; each transfer and each read takes the time that is set.
class Passes : public testing::Test {
 protected:
  void run(std::vector<UnitIndex> const& order, std::size_t read_buffers = 0) {
    control_.begin_pass(order, {std::vector<std::size_t>(order.size(), 0), read_buffers});
    for (std::size_t i = 0; i < order.size(); ++i) {
      control_.ask();
      control_.receive();
      if (i == 4) control_.transfer(i, {}, {});
      if (i == 4 && read_buffers > 0) control_.read(order[i], {}, {});
      time_ += 1.0;
    }
    control_.end_pass();
    time_ += 100.0;  // the optimizer step
  }

  double transfer_seconds_ = 2.5;
  PrefetchControl& control() { return control_; }

 private:
  /// The clocks of transfers have threads of their own, which read twice per transfer.
  double now() {
    if (std::this_thread::get_id() == main_) return time_;
    thread_local bool has_begun = false;
    has_begun = !has_begun;
    return has_begun ? 0.0 : transfer_seconds_;
  }
  std::thread::id main_ = std::this_thread::get_id();
  double time_ = 0.0;
  std::unique_ptr<comm::Collectives> comm_ = comm::make_loopback();
  std::unique_ptr<memory::Queue> compute_ = memory::make_inline_queue("compute");
  PrefetchControl control_{*comm_, *compute_, [this] { return now(); }};
};

TEST_F(Passes, TheSecondIsMeasuredAndTheThirdHasTheDepth) {
  for (int pass = 0; pass < 2; ++pass) {
    run(order_of());
    EXPECT_GT(control().depth(), acquisitions) << "only the buffers limit it";
    EXPECT_FALSE(control().report());
  }
  run(order_of());
  EXPECT_EQ(control().depth(), 3u);  // 2.5 s behind computations of 1 s
  auto const& report = control().report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->units, 3);
  EXPECT_EQ(report->max_units, 5);
  EXPECT_EQ(report->read_units, 0);
  EXPECT_EQ(report->max_read_units, 0);
  EXPECT_EQ(report->transfer_seconds, 2.5);
  EXPECT_EQ(report->compute_seconds, 6.0);
  EXPECT_EQ(report->waiting_seconds, 0.0);
  transfer_seconds_ = 0.5;
  run(order_of());
  EXPECT_EQ(control().depth(), 3u) << "measured once";
}

TEST_F(Passes, ReadsOfADriveHaveADepthOfTheirOwn) {
  transfer_seconds_ = 1.5;
  for (int pass = 0; pass < 3; ++pass) run(order_of(), 1);
  EXPECT_EQ(control().depth(), 2u);
  EXPECT_EQ(control().read_depth(), 1u) << "there is one buffer";
  EXPECT_EQ(control().report()->max_read_units, 1);
  EXPECT_EQ(control().report()->read_seconds, 1.5);
  EXPECT_EQ(control().report()->waiting_seconds, 0.5);
}

TEST_F(Passes, EachOrderHasItsDepth) {
  run(order_of());
  run(order_of());
  run(order_of(5));  // an evaluation: the measured pass is measured again
  EXPECT_FALSE(control().report());
  run(order_of());
  EXPECT_FALSE(control().report());
  run(order_of());
  EXPECT_EQ(control().depth(), 3u);
  transfer_seconds_ = 1.5;
  run(order_of(5));
  EXPECT_GT(control().depth(), acquisitions);
  run(order_of(5));
  EXPECT_EQ(control().depth(), 2u);
  run(order_of());
  EXPECT_EQ(control().depth(), 3u);
}

TEST_F(Passes, WithoutAcquisitionsHaveNoDepth) {
  for (int pass = 0; pass < 4; ++pass) control().begin_pass({}, {});
  EXPECT_FALSE(control().report());
}

}  // namespace
}  // namespace tessera::zero::detail
