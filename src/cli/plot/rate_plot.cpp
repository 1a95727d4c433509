#include "plot/loss_plot.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/core/svg.hpp"

namespace tessera::cli {
namespace {

using Anchor = Svg::Anchor;

constexpr double width = 800, height = 400, left = 90, right = 20, top = 50, bottom = 45;
constexpr int grid_lines = 5;

double x_of(double step, std::size_t steps) {
  double const span = std::max<double>(1.0, static_cast<double>(steps) - 1.0);
  return left + (width - left - right) * (step - 1.0) / span;
}
double y_of(double rate, double highest) {
  return height - bottom - (height - top - bottom) * (highest > 0.0 ? rate / highest : 0.0);
}

void draw_axes(Svg& svg, std::size_t steps, double highest) {
  for (int i = 0; i <= grid_lines; ++i) {
    double const part = static_cast<double>(i) / grid_lines;
    double const y = y_of(part * highest, highest);
    double const step = 1.0 + part * (static_cast<double>(steps) - 1.0);
    svg.line({left, y}, {width - right, y}, "stroke='#ddd'");
    svg.text({left - 8, y + 4}, Anchor::end, fmt::format("{:.3g}", part * highest));
    svg.text({x_of(step, steps), height - bottom + 18}, Anchor::middle,
             fmt::format("{:.0f}", step));
  }
  svg.text({(left + width - right) / 2, height - 8}, Anchor::middle, "optimizer step");
}

}  // namespace

std::string rates_csv(std::vector<double> const& rates) {
  std::string out = "step,learning_rate\n";
  for (std::size_t i = 0; i < rates.size(); ++i) out += fmt::format("{},{}\n", i + 1, rates[i]);
  return out;
}

std::string draw_rates(std::vector<double> const& rates, std::string const& title) {
  double const highest = rates.empty() ? 0.0 : *std::ranges::max_element(rates);
  Svg svg(width, height);
  svg.text({left, 28}, Anchor::start, title, "font-size='16'");
  draw_axes(svg, rates.size(), highest);
  std::vector<Svg::Point> points;
  for (std::size_t i = 0; i < rates.size(); ++i)
    points.push_back({x_of(static_cast<double>(i + 1), rates.size()), y_of(rates[i], highest)});
  svg.polyline(points, "stroke='#2f6db5'");
  return svg.str();
}

}  // namespace tessera::cli
