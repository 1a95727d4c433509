#include "tessera/core/clock.hpp"

#include <gtest/gtest.h>

#include <ctime>

namespace tessera {
namespace {

TEST(Clock, SecondsSinceAPointInThePast) {
  double const seconds = seconds_since(Clock::now() - std::chrono::milliseconds(2500));
  EXPECT_GE(seconds, 2.5);
  EXPECT_LT(seconds, 60.0);
}

TEST(Clock, TimestampIsTheCurrentTimeInUtc) {
  std::time_t const before = std::time(nullptr);
  std::string const text = utc_timestamp();
  std::time_t const after = std::time(nullptr);
  std::tm parts{};
  char const* const end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  ASSERT_TRUE(end && *end == '\0') << text;
  std::time_t const time = ::timegm(&parts);
  EXPECT_GE(time, before);
  EXPECT_LE(time, after);
}

}  // namespace
}  // namespace tessera
