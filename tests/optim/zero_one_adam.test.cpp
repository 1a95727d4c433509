#include "detail/zero_one_adam.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/optim/compression.hpp"

namespace tessera::optim::detail {
namespace {

/// DeepSpeed's counters, step by step.
TEST(ZeroOneAdam, UpdatesTheVarianceAsDeepSpeedCounts) {
  for (std::int64_t const scaler : {1, 2, 3, 16}) {
    std::int64_t interval = 1, counter = 0;
    for (std::int64_t t = 1; t <= 1000; ++t) {
      bool const updates = t % interval == 0;
      EXPECT_EQ(updates_variance(t, scaler), updates) << t << " " << scaler;
      if (updates && ++counter == scaler) {
        counter = 0;
        interval *= 2;
      }
    }
  }
}

TEST(ZeroOneAdam, WidensTheIntervalAsDeepSpeedCounts) {
  for (std::int64_t const scaler : {1, 3, 5})
    for (std::int64_t const clipper : {1, 4, 6}) {
      std::int64_t interval = 1, counter = 0;
      for (std::int64_t k = 1; k <= 60; ++k) {
        EXPECT_EQ(local_interval(k, scaler, clipper), interval) << k;
        if (++counter == scaler) {
          counter = 0;
          interval = std::min(clipper, 2 * interval);
        }
      }
    }
}

TEST(ZeroOneAdam, CommunicatesByPhase) {
  auto const optimizer = make_optimizer(make_spec("ZeroOneAdam", {{"var_freeze_step", 8},
                                                                  {"var_update_scaler", 2},
                                                                  {"local_step_scaler", 2},
                                                                  {"local_step_clipper", 2}}));
  auto const* const compression = compression_of(*optimizer);
  ASSERT_TRUE(compression);
  std::string reduces, exchanges, clears;
  for (std::int64_t t = 1; t <= 14; ++t) {
    auto const c = compression->communication(t);
    reduces += c.reduces_gradients ? 'x' : '.';
    exchanges += c.exchanges ? 'x' : '.';
    clears += c.clears_errors ? 'x' : '.';
    EXPECT_EQ(c.accumulates, t > 8) << t;
  }
  EXPECT_EQ(reduces, "xx.x.x.x......");
  EXPECT_EQ(exchanges, "..x.x.x.xx.x.x");
  EXPECT_EQ(clears, "........x.....");
}

}  // namespace
}  // namespace tessera::optim::detail
