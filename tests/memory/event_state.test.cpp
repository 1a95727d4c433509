#include "detail/event_state.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace tessera::memory::detail {
namespace {

TEST(HostPoint, IsDoneOnceItIsFinished) {
  HostPoint point;
  EXPECT_FALSE(point.done());
  EXPECT_FALSE(point.wait_for(std::chrono::milliseconds(1)));
  point.rethrow();  // no error
  std::jthread const worker([&] { point.finish(nullptr); });
  EXPECT_TRUE(point.wait_for(std::chrono::hours(24 * 365 * 400))) << "no clock overflows";
  EXPECT_TRUE(point.done());
  point.wait();
}

TEST(HostPoint, GivesItsErrorToEveryWaiter) {
  HostPoint point;
  point.finish(std::make_exception_ptr(std::runtime_error("kernel failed")));
  EXPECT_TRUE(point.wait_for(std::chrono::milliseconds(0)));
  EXPECT_THROW(point.rethrow(), std::runtime_error);
  EXPECT_THROW(point.wait(), std::runtime_error);
}

}  // namespace
}  // namespace tessera::memory::detail
