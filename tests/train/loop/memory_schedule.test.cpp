#include "tessera/train/loop/memory_schedule.hpp"

#include <gtest/gtest.h>

namespace tessera::train {
namespace {

using config::MemorySaveSteps;

TEST(MemorySchedule, SavesEveryGivenNumberOfSteps) {
  MemorySchedule schedule({3}, 11);
  schedule.cost(1e9);
  EXPECT_EQ(schedule.interval(), 3) << "a given number stays";
  EXPECT_FALSE(schedule.due(12));
  EXPECT_TRUE(schedule.due(13));
  schedule.begins(14);  // another save was in flight
  EXPECT_FALSE(schedule.due(16));
  EXPECT_TRUE(schedule.due(17));
}

TEST(MemorySchedule, AutomaticCostsOnePercent) {
  MemorySchedule schedule({MemorySaveSteps::automatic}, 1);
  EXPECT_FALSE(schedule.due(1));
  EXPECT_TRUE(schedule.due(2)) << "the first one is a measurement";
  schedule.step_took(50.0);  // the first step allocates
  schedule.step_took(0.2);
  schedule.step_took(0.4);
  schedule.begins(2);
  schedule.cost(0.088);  // 0.3 s per step: 30 steps lose 1 %
  EXPECT_EQ(schedule.interval(), 30);
  EXPECT_FALSE(schedule.due(31));
  EXPECT_TRUE(schedule.due(32));
  schedule.cost(0.0);
  EXPECT_EQ(schedule.interval(), 1);
}

TEST(MemorySchedule, WithoutAMeasuredStepTheIntervalStays) {
  MemorySchedule schedule({MemorySaveSteps::automatic}, 1);
  schedule.cost(1.0);
  schedule.step_took(1.0);
  schedule.cost(1.0);
  EXPECT_EQ(schedule.interval(), 2);
}

}  // namespace
}  // namespace tessera::train
