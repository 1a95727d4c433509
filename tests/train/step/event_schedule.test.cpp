#include "tessera/train/step/event_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tessera::train {
namespace {

using config::Interval;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::int64_t> due_steps(EventSchedule const& schedule) {
  std::vector<std::int64_t> out;
  for (std::int64_t step = 1; step <= schedule.total_steps; ++step)
    if (schedule.due(step)) out.push_back(step);
  return out;
}

TEST(EventSchedule, IsDueByStepsOrEpochsAndAtTheEnd) {
  EXPECT_THAT(due_steps({Interval::no, 2, 3, 10}), IsEmpty());
  EXPECT_THAT(due_steps({Interval::steps, 4, 3, 10}), ElementsAre(4, 8, 10));
  EXPECT_THAT(due_steps({Interval::steps, 5, 3, 10}), ElementsAre(5, 10));
  EXPECT_THAT(due_steps({Interval::steps, 500, 3, 10}), ElementsAre(10));
  EXPECT_THAT(due_steps({Interval::epoch, 4, 3, 10}), ElementsAre(3, 6, 9, 10));
  EXPECT_THAT(due_steps({Interval::best, 4, 3, 10}), IsEmpty());
}

TEST(EventSchedule, BeginsAfterItsDelay) {
  EXPECT_THAT(due_steps({Interval::steps, 2, 3, 10, 5.0}), ElementsAre(6, 8, 10));
  EXPECT_THAT(due_steps({Interval::epoch, 4, 3, 10, 2.0}), ElementsAre(6, 9, 10));
  EXPECT_THAT(due_steps({Interval::epoch, 4, 3, 10, 2.5}), ElementsAre(9, 10));
}

}  // namespace
}  // namespace tessera::train
