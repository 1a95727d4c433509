#include "plot/loss_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::cli {
namespace {

constexpr double width = 900, height = 520, left = 70, right = 30, top = 50, bottom = 55;

constexpr char const* loss_style = "stroke='#9ec5e8' stroke-width='1'";
constexpr char const* mean_style = "stroke='#1f5f99' stroke-width='2.5'";

struct Range {
  double low = 0.0, high = 1.0;
};

/// Distance between ticks: 1, 2 or 5 times a power of ten, for about `wanted` ticks.
double tick_distance(Range const& range, int wanted) {
  double const rough = (range.high - range.low) / wanted;
  double const power = std::pow(10.0, std::floor(std::log10(rough)));
  for (double m : {1.0, 2.0, 5.0})
    if (rough <= m * power) return m * power;
  return 10.0 * power;
}

struct Axes {
  Range x, y;
  double px(double v) const {
    return left + (v - x.low) / (x.high - x.low) * (width - left - right);
  }
  double py(double v) const {
    return height - bottom - (v - y.low) / (y.high - y.low) * (height - top - bottom);
  }
};

Axes axes_for(LossCurves const& curves) {
  Axes axes;
  axes.y = {INFINITY, -INFINITY};
  axes.x = {0.0, 1.0};
  for (auto const* points : {&curves.training, &curves.evaluation})
    for (auto const& p : *points) {
      axes.x.high = std::max(axes.x.high, p.step);
      axes.y.low = std::min(axes.y.low, p.value);
      axes.y.high = std::max(axes.y.high, p.value);
    }
  if (axes.y.high - axes.y.low < 1e-6) axes.y.high = axes.y.low + 1.0;
  double const tick = tick_distance(axes.y, 6);
  axes.y.low = std::floor(axes.y.low / tick) * tick;
  axes.y.high = std::ceil(axes.y.high / tick) * tick;
  return axes;
}

std::string escape(std::string const& text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string grid(Axes const& axes) {
  std::string out;
  double const ty = tick_distance(axes.y, 6);
  for (double v = axes.y.low; v <= axes.y.high + ty / 2; v += ty) {
    out += fmt::format("<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' stroke='#ddd'/>", left,
                       axes.py(v), width - right, axes.py(v));
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{:g}</text>\n", left - 8,
                       axes.py(v) + 4, std::round(v * 1e6) / 1e6);
  }
  double const tx = tick_distance(axes.x, 8);
  for (double v = 0; v <= axes.x.high + 1e-9; v += tx) {
    out += fmt::format("<line x1='{:.1f}' y1='{}' x2='{:.1f}' y2='{}' stroke='#eee'/>", axes.px(v),
                       top, axes.px(v), height - bottom);
    out += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:g}</text>\n", axes.px(v),
                       height - bottom + 18, v);
  }
  out += fmt::format("<text x='{}' y='{}' text-anchor='middle'>optimizer step</text>\n",
                     (left + width - right) / 2, height - 12);
  out += fmt::format(
      "<text x='18' y='{}' text-anchor='middle' transform='rotate(-90 18 {})'>loss (nats per "
      "token)</text>\n",
      (top + height - bottom) / 2, (top + height - bottom) / 2);
  return out;
}

std::string polyline(Axes const& axes, std::vector<CurvePoint> const& points, char const* style) {
  std::string out = "<polyline fill='none' ";
  out += style;
  out += " points='";
  for (auto const& p : points)
    out += fmt::format("{:.1f},{:.1f} ", axes.px(p.step), axes.py(p.value));
  return out + "'/>\n";
}

/// Mean over a window around each point, one twentieth of the curve wide.
std::vector<CurvePoint> running_mean(std::vector<CurvePoint> const& points) {
  std::vector<CurvePoint> out;
  std::size_t const half = std::max<std::size_t>(1, points.size() / 40);
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::size_t const reach = std::min({half, i, points.size() - 1 - i});
    double sum = 0.0;
    for (std::size_t k = i - reach; k <= i + reach; ++k) sum += points[k].value;
    out.push_back({points[i].step, sum / static_cast<double>(2 * reach + 1)});
  }
  return out;
}

/// One line for each thing that is drawn.
std::string legend(LossCurves const& curves) {
  double const x = width - right - 190;
  double y = top + 14;
  std::string out;
  auto const add = [&](std::string const& sign, char const* meaning) {
    out += fmt::format("{}<text x='{}' y='{}'>{}</text>\n", sign, x + 32, y + 4, meaning);
    y += 20;
  };
  auto const line = [&](char const* style) {
    return fmt::format("<line x1='{0}' y1='{1}' x2='{2}' y2='{1}' {3}/>", x, y, x + 24, style);
  };
  if (!curves.training.empty()) {
    add(line(loss_style), "training loss of each step");
    add(line(mean_style), "training loss, running mean");
  }
  if (!curves.evaluation.empty())
    add(fmt::format("<circle cx='{}' cy='{}' r='5' fill='#d1495b'/>", x + 12, y),
        "evaluation loss");
  return out;
}

}  // namespace

LossCurves read_loss_curves(std::filesystem::path const& run_directory) {
  auto const file = run_directory / "metrics.jsonl";
  std::ifstream in(file);
  TESSERA_VALIDATE(in.good(), IoError, path_error("cannot read", file, errno),
                   "; give the output_dir of a training run");
  LossCurves curves;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    auto const record = ConfigTree::parse(line, concat(file.string(), " line ", ++number));
    double const step = record.get_double("step", 0.0);
    if (auto const* loss = record.find("loss"); loss && loss->is_number())
      curves.training.push_back({step, loss->as_double()});
    if (auto const* loss = record.find("eval_loss"); loss && loss->is_number())
      curves.evaluation.push_back({step, loss->as_double()});
  }
  TESSERA_VALIDATE(!curves.training.empty() || !curves.evaluation.empty(), DataError, file.string(),
                   " contains no loss; wait until the run has completed a step");
  return curves;
}

std::string draw_svg(LossCurves const& curves, std::string const& title) {
  Axes const axes = axes_for(curves);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='{0}' height='{1}' "
      "fill='white'/>\n<text x='{2}' y='28' font-size='16'>{3}</text>\n",
      width, height, left, escape(title));
  svg += grid(axes);
  if (!curves.training.empty()) {
    svg += polyline(axes, curves.training, loss_style);
    svg += polyline(axes, running_mean(curves.training), mean_style);
  }
  for (auto const& p : curves.evaluation)
    svg += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='5' fill='#d1495b'><title>step {:g}: eval_loss "
        "{:.4f}</title></circle>\n",
        axes.px(p.step), axes.py(p.value), p.step, p.value);
  return svg + legend(curves) + "</svg>\n";
}

}  // namespace tessera::cli
