#include "plot/loss_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/svg.hpp"

namespace tessera::cli {
namespace {

using Anchor = Svg::Anchor;

constexpr double width = 900, height = 520, left = 70, right = 30, top = 50, bottom = 55;

constexpr char const* loss_style = "stroke='#9ec5e8' stroke-width='1'";
constexpr char const* mean_style = "stroke='#1f5f99' stroke-width='2.5'";
constexpr char const* evaluation_color = "#d1495b";

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
  Svg::Point at(CurvePoint const& p) const {
    return {left + (p.step - x.low) / (x.high - x.low) * (width - left - right),
            height - bottom - (p.value - y.low) / (y.high - y.low) * (height - top - bottom)};
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

void draw_grid(Svg& svg, Axes const& axes) {
  double const ty = tick_distance(axes.y, 6);
  for (double v = axes.y.low; v <= axes.y.high + ty / 2; v += ty) {
    double const y = axes.at({0, v}).y;
    svg.line({left, y}, {width - right, y}, "stroke='#ddd'");
    svg.text({left - 8, y + 4}, Anchor::end, fmt::format("{:g}", std::round(v * 1e6) / 1e6));
  }
  double const tx = tick_distance(axes.x, 8);
  for (double v = 0; v <= axes.x.high + 1e-9; v += tx) {
    double const x = axes.at({v, 0}).x;
    svg.line({x, top}, {x, height - bottom}, "stroke='#eee'");
    svg.text({x, height - bottom + 18}, Anchor::middle, fmt::format("{:g}", v));
  }
  svg.text({(left + width - right) / 2, height - 12}, Anchor::middle, "optimizer step");
  double const middle = (top + height - bottom) / 2;
  svg.text({18, middle}, Anchor::middle, "loss (nats per token)",
           fmt::format("transform='rotate(-90 18 {})'", middle));
}

void draw_curve(Svg& svg, Axes const& axes, std::vector<CurvePoint> const& points,
                char const* style) {
  std::vector<Svg::Point> out;
  for (auto const& p : points) out.push_back(axes.at(p));
  svg.polyline(out, style);
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
void draw_legend(Svg& svg, LossCurves const& curves) {
  Svg::Point sign{width - right - 190, top + 14};
  auto const name = [&](char const* meaning) {
    svg.text({sign.x + 32, sign.y + 4}, Anchor::start, meaning);
    sign.y += 20;
  };
  if (!curves.training.empty()) {
    svg.line(sign, {sign.x + 24, sign.y}, loss_style);
    name("training loss of each step");
    svg.line(sign, {sign.x + 24, sign.y}, mean_style);
    name("training loss, running mean");
  }
  if (!curves.evaluation.empty()) {
    svg.dot({sign.x + 12, sign.y}, evaluation_color);
    name("evaluation loss");
  }
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
  Svg svg(width, height);
  svg.text({left, 28}, Anchor::start, title, "font-size='16'");
  draw_grid(svg, axes);
  if (!curves.training.empty()) {
    draw_curve(svg, axes, curves.training, loss_style);
    draw_curve(svg, axes, running_mean(curves.training), mean_style);
  }
  for (auto const& p : curves.evaluation)
    svg.dot(axes.at(p), evaluation_color,
            fmt::format("step {:g}: eval_loss {:.4f}", p.step, p.value));
  draw_legend(svg, curves);
  return svg.str();
}

}  // namespace tessera::cli
