#include "plot/loss_plot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

TEST(RatePlot, CsvHasEveryDigit) {
  EXPECT_EQ(rates_csv({0.0, 5e-05, 1.0 / 3.0}),
            "step,learning_rate\n1,0\n2,5e-05\n3,0.3333333333333333\n");
}

TEST(RatePlot, TheHighestRateIsAtTheTop) {
  auto const svg = draw_rates({0.0, 1e-3, 5e-4}, "Learning rate");
  EXPECT_THAT(svg, HasSubstr("points='90.0,355.0 435.0,50.0 780.0,202.5 '"));
  EXPECT_THAT(svg, HasSubstr(">0.001</text>"));
  EXPECT_THAT(draw_rates({}, "t"), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace tessera::cli
