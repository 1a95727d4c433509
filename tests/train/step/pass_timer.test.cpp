#include "tessera/train/step/pass_timer.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::train {
namespace {

/// The measured times are of the clock, so time has to pass.
void pass_time() { std::this_thread::sleep_for(std::chrono::milliseconds(4)); }

/// Two blocks: embedding, block.0, block.1, head, then block.1 and block.0 backward.
TEST(PassTimer, AttributesTimeToUnitsAndPhases) {
  auto const queue = memory::make_inline_queue("compute");
  PassTimer timer(*queue, 2);
  timer.begin_step();
  pass_time();
  timer.begin_passes();
  for (int segment = 0; segment < 5; ++segment) {
    if (segment == 1 || segment == 4) pass_time();  // block.0 forward, block.1 backward
    timer.between_layers();
  }
  pass_time();  // block.0 and embedding backward
  timer.end_passes();
  timer.end_step();
  auto const& units = timer.units();
  ASSERT_EQ(units.size(), 4u);
  constexpr double least = 3e-3;
  EXPECT_GE(timer.phases().data, least);
  EXPECT_GE(units[1].forward, least);
  EXPECT_GE(units[2].backward, least);
  EXPECT_GE(units[1].backward, least);
  EXPECT_EQ(units[0].backward, 0.0);
  EXPECT_EQ(units[3].forward, 0.0);
  EXPECT_NEAR(timer.phases().forward, units[0].forward + units[1].forward + units[2].forward,
              1e-12);
  EXPECT_NEAR(timer.phases().backward, units[1].backward + units[2].backward + units[3].backward,
              1e-12);
  timer.begin_step();
  EXPECT_EQ(timer.phases().forward, 0.0);
}

}  // namespace
}  // namespace tessera::train
