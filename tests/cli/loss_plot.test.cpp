#include "plot/loss_plot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using testing::HasSubstr;

std::size_t count(std::string const& text, std::string const& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(LossCurves, AreReadFromMetrics) {
  ScratchFiles const files;
  files.write("metrics.jsonl",
              "{\"step\": 1, \"loss\": 4.5}\n{\"step\": 2, \"loss\": 4.25, \"lr\": 0.1}\n"
              "{\"step\": 2, \"eval_loss\": 4.0}\n{\"step\": 2, \"save_seconds\": 0.5}\n");
  auto const curves = read_loss_curves(files.directory());
  ASSERT_EQ(curves.training.size(), 2u);
  EXPECT_EQ(curves.training[1].step, 2.0);
  EXPECT_EQ(curves.training[1].value, 4.25);
  ASSERT_EQ(curves.evaluation.size(), 1u);
  EXPECT_EQ(curves.evaluation[0].value, 4.0);
}

TEST(LossCurves, AMissingOrEmptyFileIsAnError) {
  ScratchFiles const files;
  EXPECT_THROW(read_loss_curves(files.directory()), IoError);
  files.write("metrics.jsonl", "{\"step\": 1}\n");
  EXPECT_THROW(read_loss_curves(files.directory()), DataError);
}

/// The axes end at ticks, so that known losses have known heights: 2.0 at the top, 1.0 at the
/// bottom.
TEST(LossPlot, PointsAreWhereTheAxesSay) {
  LossCurves const curves{{{0, 2.0}, {5, 1.5}, {10, 1.0}}, {{10, 1.0}}};
  std::string const svg = draw_svg(curves, "a < b & c");
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, HasSubstr("points='70.0,50.0 470.0,257.5 870.0,465.0 '"));
  EXPECT_THAT(svg, HasSubstr("<circle cx='870.0' cy='465.0'"));
  EXPECT_EQ(count(svg, "<polyline"), 2u) << "losses and their running mean";
  EXPECT_THAT(svg, HasSubstr("step 10: eval_loss 1.0000"));
}

TEST(LossPlot, LegendNamesWhatIsDrawn) {
  LossCurves const both{{{0, 2.0}, {5, 1.5}}, {{5, 1.0}}};
  std::string const all = draw_svg(both, "");
  for (auto const* name :
       {">training loss of each step<", ">training loss, running mean<", ">evaluation loss<"})
    EXPECT_EQ(count(all, name), 1u) << name;
  EXPECT_EQ(count(all, "stroke='#9ec5e8'"), 2u) << "the curve, and its line in the legend";
  std::string const training = draw_svg({both.training, {}}, "");
  EXPECT_EQ(count(training, ">evaluation loss<"), 0u);
  std::string const evaluation = draw_svg({{}, both.evaluation}, "");
  EXPECT_EQ(count(evaluation, ">training loss"), 0u);
  EXPECT_EQ(count(evaluation, "<polyline"), 0u);
  EXPECT_EQ(count(evaluation, ">evaluation loss<"), 1u);
}

TEST(LossPlot, AConstantLossHasARange) {
  std::string const svg = draw_svg({{{1, 3.0}, {2, 3.0}}, {}}, "flat");
  EXPECT_THAT(svg, testing::Not(HasSubstr("nan")));
  EXPECT_THAT(svg, testing::Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace tessera::cli
