#include "commands.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

TEST(Ages, HaveUnits) {
  EXPECT_EQ(age_seconds(""), 0.0);
  EXPECT_EQ(age_seconds("90"), 90.0);
  EXPECT_EQ(age_seconds("90s"), 90.0);
  EXPECT_EQ(age_seconds("30m"), 1800.0);
  EXPECT_EQ(age_seconds("1.5h"), 5400.0);
  EXPECT_EQ(age_seconds("7d"), 604800.0);
  EXPECT_EQ(age_seconds("2w"), 1209600.0);
}

TEST(Ages, OtherTextsAreRefused) {
  for (char const* text : {"d", "-1d", "7y", "7 d", "nan", "inf", "1e999"})
    EXPECT_THROW(age_seconds(text), UsageError) << text;
}

}  // namespace
}  // namespace tessera::cli
