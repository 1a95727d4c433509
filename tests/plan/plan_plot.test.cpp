#include "tessera/plan/plan_report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "plan_fixture.hpp"

namespace tessera::plan {
namespace {

std::ptrdiff_t count(std::string const& text, char const* pattern) {
  std::regex const expression(pattern);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), expression), {});
}

TEST(PlanPlot, HasABarForEachChoiceAndPurpose) {
  auto request = test::request(test::small_gpt2());
  request.limits.device = std::int64_t{60} << 20;
  Planner planner(request);
  auto const choices = planner.compare();
  auto const svg = draw_plan(planner, choices);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  auto const is_weights = "fill='#1f5f99'";
  auto const on_device = std::ranges::count_if(
      choices, [](auto const& p) { return p.choice.parameters == config::OffloadDevice::none; });
  EXPECT_GT(on_device, 0);
  EXPECT_EQ(count(svg, is_weights), 1 + on_device) << "and the legend";
  EXPECT_EQ(count(svg, "stroke-dasharray"), 1) << "the limit";
  EXPECT_EQ(count(svg, "seconds per step"), 0);
  request.machine = test::round_machine();
  Planner timed(std::move(request));
  EXPECT_EQ(count(draw_plan(timed, timed.compare()), "seconds per step"), 1);
}

/// Heights of the bars of one choice add up to its share of the axis.
TEST(PlanPlot, StacksUpToTheTotal) {
  Planner planner(test::request(test::small_gpt2({"--per_device_train_batch_size", "8"})));
  auto const choices = planner.compare();
  double most = 0.0;
  for (auto const& p : choices) most = std::max(most, static_cast<double>(p.memory.device.total()));
  auto const svg = draw_plan(planner, choices);
  std::regex const bar("<rect x='110.0' y='[0-9.]+' width='34' height='([0-9.]+)'");
  double height = 0.0;
  for (std::sregex_iterator i(svg.begin(), svg.end(), bar), end; i != end; ++i)
    height += std::stod((*i)[1]);
  EXPECT_NEAR(height, 240.0 * static_cast<double>(choices[0].memory.device.total()) / most, 0.5);
}

}  // namespace
}  // namespace tessera::plan
