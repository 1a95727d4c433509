#include "tessera/core/status_line.hpp"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

TEST(ProgressText, ShowsShareRateAndTimeLeft) {
  EXPECT_EQ(progress_text("verify", 2 * gib, 8 * gib, 4.0),
            "  verify [======>                 ]  25 %  2.0 GiB of 8.0 GiB, 512.0 MiB/s, left 12s");
}

TEST(ProgressText, BeginAndEnd) {
  EXPECT_EQ(progress_text("copy", 0, gib, 0.0),
            "  copy [>                       ]   0 %  0 B of 1.0 GiB, 0 B/s, left ?");
  EXPECT_EQ(progress_text("copy", gib, gib, 1.0),
            "  copy [========================] 100 %  1.0 GiB of 1.0 GiB, 1.0 GiB/s, left 0s");
}

TEST(ProgressText, AnEmptyOrGrowingTotalStaysInBounds) {
  EXPECT_NE(progress_text("copy", 0, 0, 1.0).find("  0 %"), std::string::npos);
  EXPECT_NE(progress_text("copy", 3 * gib, gib, 1.0).find("100 %"), std::string::npos);
}

TEST(StatusLine, WritesNothingWhereStderrIsNoTerminal) {
  ::testing::internal::CaptureStderr();  // redirects descriptor 2 to a file
  {
    StatusLine line;
    EXPECT_FALSE(line.on_terminal());
    line.show("text");
    ByteProgress progress("copy");
    progress(1, 2);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tessera
