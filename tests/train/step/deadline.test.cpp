#include "tessera/train/step/deadline.hpp"

#include <gtest/gtest.h>

namespace tessera::train {
namespace {

using namespace std::chrono_literals;
using Seconds = Deadline::Seconds;
Deadline::Clock::time_point const start{1000000s};

TEST(Deadline, NoneIsNeverDue) {
  Deadline const none;
  EXPECT_FALSE(none.set());
  EXPECT_FALSE(none.due(Deadline::Clock::time_point::max()));
}

TEST(Deadline, TheReserveIsMadeOfStepsSavesAndAMargin) {
  Deadline day(start, start + 24h);
  EXPECT_EQ(day.reserve(), Seconds(120));  // nothing saved yet: the margin of 60 s twice
  day.step_took(Seconds(3));
  day.step_took(Seconds(2));
  EXPECT_EQ(day.reserve(), Seconds(126));
  day.save_took(Seconds(40));
  day.save_took(Seconds(10));
  EXPECT_EQ(day.reserve(), Seconds(2 * 3 + 2 * 40 + 60));
  EXPECT_FALSE(day.due(start + 24h - 147s));
  EXPECT_TRUE(day.due(start + 24h - 145s));
}

TEST(Deadline, ShortJobsHaveASmallMargin) {
  Deadline minute(start, start + 60s);
  minute.save_took(Seconds(0));
  EXPECT_EQ(minute.reserve(), Seconds(6));
  Deadline moment(start, start + 10s);
  moment.save_took(Seconds(0));
  EXPECT_EQ(moment.reserve(), Seconds(5));
}

}  // namespace
}  // namespace tessera::train
