#include "plot/loss_plot.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::cli {
namespace {

constexpr double width = 800, height = 400, left = 90, right = 20, top = 50, bottom = 45;
constexpr int grid_lines = 5;

double x_of(double step, std::size_t steps) {
  double const span = std::max<double>(1.0, static_cast<double>(steps) - 1.0);
  return left + (width - left - right) * (step - 1.0) / span;
}
double y_of(double rate, double highest) {
  return height - bottom - (height - top - bottom) * (highest > 0.0 ? rate / highest : 0.0);
}

std::string axes(std::size_t steps, double highest) {
  std::string out;
  for (int i = 0; i <= grid_lines; ++i) {
    double const part = static_cast<double>(i) / grid_lines;
    double const y = y_of(part * highest, highest);
    double const step = 1.0 + part * (static_cast<double>(steps) - 1.0);
    out += fmt::format("<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' stroke='#ddd'/>", left, y,
                       width - right, y);
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{:.3g}</text>", left - 8, y + 4,
                       part * highest);
    out += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:.0f}</text>\n",
                       x_of(step, steps), height - bottom + 18, step);
  }
  return out + fmt::format("<text x='{}' y='{}' text-anchor='middle'>optimizer step</text>\n",
                           (left + width - right) / 2, height - 8);
}

}  // namespace

std::string rates_csv(std::vector<double> const& rates) {
  std::string out = "step,learning_rate\n";
  for (std::size_t i = 0; i < rates.size(); ++i) out += fmt::format("{},{}\n", i + 1, rates[i]);
  return out;
}

std::string draw_rates(std::vector<double> const& rates, std::string const& title) {
  double const highest = rates.empty() ? 0.0 : *std::ranges::max_element(rates);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='{0}' height='{1}' "
      "fill='white'/>\n<text x='{2}' y='28' font-size='16'>{3}</text>\n",
      width, height, left, title);
  svg += axes(rates.size(), highest) + "<polyline fill='none' stroke='#2f6db5' points='";
  for (std::size_t i = 0; i < rates.size(); ++i)
    svg += fmt::format("{:.1f},{:.1f} ", x_of(static_cast<double>(i + 1), rates.size()),
                       y_of(rates[i], highest));
  return svg + "'/>\n</svg>\n";
}

}  // namespace tessera::cli
