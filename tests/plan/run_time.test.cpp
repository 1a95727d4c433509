#include "tessera/plan/run_time.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::plan {
namespace {

TEST(RunTime, WithoutFailuresIsWorkAndSaves) {
  RunPlan const plan{.work = 1000.0, .interval = 100.0, .save = 5.0};
  EXPECT_DOUBLE_EQ(expected_duration(plan), 1050.0);
  auto const run = simulate_run(plan, 1);
  EXPECT_DOUBLE_EQ(run.seconds, 1050.0);
  EXPECT_EQ(run.saves, 10);
  EXPECT_EQ(run.failures, 0);
}

/// Drawn failures against Daly's expectation.
TEST(RunTime, FailuresCostWhatDalyExpects) {
  for (double const between : {50.0, 200.0, 2000.0}) {
    RunPlan const plan{.work = 2000.0,
                       .interval = 40.0,
                       .save = 2.0,
                       .restart = 10.0,
                       .between_failures = between};
    double sum = 0.0, failures = 0.0;
    constexpr int runs = 400;
    for (int i = 0; i < runs; ++i) {
      auto const run = simulate_run(plan, static_cast<std::uint64_t>(i));
      sum += run.seconds;
      failures += static_cast<double>(run.failures);
    }
    // a restart follows failures only, where Daly's segments all have one in expectation
    EXPECT_NEAR(sum / runs / expected_duration(plan), 1.0, 0.05) << between;
    EXPECT_NEAR(failures / runs, sum / runs / between, 0.05 * sum / runs / between + 0.1);
  }
}

/// sqrt(2 C M) loses least.
TEST(RunTime, YoungsIntervalIsTheShortestTraining) {
  double const save = 10.0, between = 7200.0;
  auto const at = [&](double interval) {
    return expected_duration(
        {.work = 1e6, .interval = interval, .save = save, .between_failures = between});
  };
  double const best = std::sqrt(2.0 * save * between);
  EXPECT_LT(at(best), at(1.4 * best));
  EXPECT_LT(at(best), at(best / 1.4));
  EXPECT_NEAR(at(best) / at(0.97 * best), 1.0, 1e-3);
}

}  // namespace
}  // namespace tessera::plan
