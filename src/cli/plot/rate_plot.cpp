#include "plot/loss_plot.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/core/svg.hpp"

namespace tessera::cli {
namespace {

using Anchor = Svg::Anchor;

constexpr double rate_width = 800, rate_height = 400, rate_left = 90, rate_right = 20,
                 rate_top = 50, rate_bottom = 45;
constexpr int grid_lines = 5;

double x_of(double step, std::size_t steps) {
  double const span = std::max<double>(1.0, static_cast<double>(steps) - 1.0);
  return rate_left + (rate_width - rate_left - rate_right) * (step - 1.0) / span;
}
double y_of(double rate, double highest) {
  return rate_height - rate_bottom -
         (rate_height - rate_top - rate_bottom) * (highest > 0.0 ? rate / highest : 0.0);
}

void draw_axes(Svg& svg, std::size_t steps, double highest) {
  for (int i = 0; i <= grid_lines; ++i) {
    double const part = static_cast<double>(i) / grid_lines;
    double const y = y_of(part * highest, highest);
    double const step = 1.0 + part * (static_cast<double>(steps) - 1.0);
    svg.line({rate_left, y}, {rate_width - rate_right, y}, "stroke='#ddd'");
    svg.text({rate_left - 8, y + 4}, Anchor::end, fmt::format("{:.3g}", part * highest));
    svg.text({x_of(step, steps), rate_height - rate_bottom + 18}, Anchor::middle,
             fmt::format("{:.0f}", step));
  }
  svg.text({(rate_left + rate_width - rate_right) / 2, rate_height - 8}, Anchor::middle,
           "optimizer step");
}

}  // namespace

std::string rates_csv(std::vector<double> const& rates) {
  std::string out = "step,learning_rate\n";
  for (std::size_t i = 0; i < rates.size(); ++i) out += fmt::format("{},{}\n", i + 1, rates[i]);
  return out;
}

std::string draw_rates(std::vector<double> const& rates, std::string const& title) {
  double const highest = rates.empty() ? 0.0 : *std::ranges::max_element(rates);
  Svg svg(rate_width, rate_height);
  svg.text({rate_left, 28}, Anchor::start, title, "font-size='16'");
  draw_axes(svg, rates.size(), highest);
  std::vector<Svg::Point> points;
  for (std::size_t i = 0; i < rates.size(); ++i)
    points.push_back({x_of(static_cast<double>(i + 1), rates.size()), y_of(rates[i], highest)});
  svg.polyline(points, "stroke='#2f6db5'");
  return svg.str();
}

}  // namespace tessera::cli
