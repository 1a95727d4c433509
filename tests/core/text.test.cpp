#include "tessera/core/text.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/core/words.hpp"

namespace tessera {
namespace {

TEST(Text, Commas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(124439808), "124,439,808");
  EXPECT_EQ(with_commas(-123456), "-123,456");
}

TEST(Text, Counts) {
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(12000, "step"), "12,000 steps");
}

TEST(Text, Numbers) {
  EXPECT_EQ(number_text(0.0001), "0.0001");
  EXPECT_EQ(number_text(-1e30), "-1e+30");
  EXPECT_EQ(number_text(-NAN), "NaN");
  EXPECT_EQ(number_text(-INFINITY), "-infinity");
  EXPECT_EQ(fixed_text(4276.7249, 2), "4276.72");
  EXPECT_EQ(fixed_text(std::exp(700.0), 2), "1.014e+304") << "not 305 digits";
  EXPECT_EQ(fixed_text(-NAN, 4), "NaN");
  EXPECT_EQ(fixed_text(INFINITY, 4), "infinity");
}

TEST(Text, Bytes) {
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(std::int64_t{3} << 40), "3.0 TiB");
}

TEST(Text, WhatControlsATerminalIsNotPrinted) {
  EXPECT_EQ(printable("a\x1b[31mb\x7f\r\n\tc"), "a?[31mb??\n\tc");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m \xc3\xa4 \xc2\xa0"),
            "??31m \xc3\xa4 \xc2\xa0");
  EXPECT_LT(printable(std::string(1 << 20, 'x')).size(), 17'000u);
}

TEST(Text, Join) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({"a", "", "c"}), "a, , c");
  EXPECT_EQ(join({"a", "b"}, " | "), "a | b");
}

TEST(Text, SplitKeepsEmptyParts) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split("a,b", ','), (Parts{"a", "b"}));
  EXPECT_EQ(split("a@", '@'), (Parts{"a", ""}));
  EXPECT_EQ(split("", ','), Parts{""});
}

TEST(Text, Durations) {
  EXPECT_EQ(human_duration(12.4), "12s");
  EXPECT_EQ(human_duration(200), "3m 20s");
  EXPECT_EQ(human_duration(3720), "1h 02m");
  EXPECT_EQ(human_duration(100000), "1d 03h");
  EXPECT_EQ(human_duration(NAN), "?");
}

TEST(Text, DeadlinesAreShownInSecondsFromOneSecondOn) {
  using namespace std::chrono_literals;
  EXPECT_EQ(deadline_text(800ms), "800 ms");
  EXPECT_EQ(deadline_text(1500ms), "1.5 s");
  EXPECT_EQ(deadline_text(10min), "600 s");
}

}  // namespace
}  // namespace tessera
