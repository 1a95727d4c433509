#include "tessera/plan/plan_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "detail/svg.hpp"
#include "tessera/core/text.hpp"

namespace tessera::plan {
namespace {

using memory::Purpose;

constexpr double left = 90, top = 60, panel = 240, gap = 150, bar = 34, pitch = 62, right = 40;

struct Part {
  char const* name;
  char const* color;
  std::vector<Purpose> purposes;
};
std::array<Part, 6> const& parts() {
  static std::array<Part, 6> const all{
      {{"weights", "#1f5f99", {Purpose::weights}},
       {"gradients", "#5b9bd5", {Purpose::gradients}},
       {"master weights", "#2e8b57", {Purpose::master_weights}},
       {"optimizer states", "#8fbc8f", {Purpose::optimizer_state}},
       {"activations", "#e08e45", {Purpose::activations}},
       {"buffers", "#b0b0b0", {Purpose::communication, Purpose::workspace, Purpose::data}}}};
  return all;
}

double bytes_of(train::PlannedSpace const& space, Part const& part) {
  double sum = 0.0;
  for (auto const purpose : part.purposes)
    if (auto const found = space.bytes.find(purpose); found != space.bytes.end())
      sum += static_cast<double>(found->second);
  return sum;
}

/// A panel whose bars have lengths from 0 to @p highest.
struct Panel {
  double base;  ///< y of value 0
  double highest;
  double length(double value) const { return highest > 0.0 ? panel * value / highest : 0.0; }
};

std::string axis(Panel const& p, double width, std::string const& title,
                 std::string (*value_text)(double)) {
  std::string out = detail::svg_text(left, p.base - panel - 14, "start", title);
  for (int i = 0; i <= 4; ++i) {
    double const value = p.highest * i / 4.0, y = p.base - p.length(value);
    out += fmt::format("<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' stroke='#ddd'/>\n", left, y,
                       width - right, y);
    out += detail::svg_text(left - 6, y + 4, "end", value_text(value));
  }
  return out;
}

std::string labels(Panel const& p, std::vector<PlannedChoice> const& shown) {
  std::string out;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    auto const& c = shown[i].choice;
    double const x = left + 20 + pitch * static_cast<double>(i) + bar / 2;
    out += detail::svg_text(x, p.base + 16, "middle", fmt::format("stage {}", c.stage));
    if (c.offloads()) out += detail::svg_text(x, p.base + 32, "middle", "offload");
    if (c.shard_group > 0)
      out += detail::svg_text(x, p.base + 32, "middle", fmt::format("groups of {}", c.shard_group));
    if (c.recompute != Recompute::none)
      out += detail::svg_text(x, p.base + 48, "middle",
                              fmt::format("recompute {}", name_of(c.recompute)));
    out += detail::svg_text(x, p.base + 64, "middle",
                            fmt::format("{} x {}", c.micro_batch, c.accumulation));
  }
  return out;
}

std::string memory_bars(Planner const& planner, Panel const& p,
                        std::vector<PlannedChoice> const& shown) {
  std::string out;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    auto const& space =
        planner.computes_on_device() ? shown[i].memory.device : shown[i].memory.host;
    double y = p.base;
    for (auto const& part : parts()) {
      double const length = p.length(bytes_of(space, part));
      if (length <= 0.0) continue;
      y -= length;
      out += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{}' height='{:.1f}' fill='{}'/>\n",
                         left + 20 + pitch * static_cast<double>(i), y, bar, length, part.color);
    }
  }
  return out;
}

std::string time_bars(Panel const& p, std::vector<PlannedChoice> const& shown) {
  std::string out;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    double const length = p.length(shown[i].time->seconds);
    out += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{}' height='{:.1f}' fill='{}'/>\n",
                       left + 20 + pitch * static_cast<double>(i), p.base - length, bar, length,
                       shown[i].fits ? "#1f5f99" : "#c8c8c8");
  }
  return out;
}

std::string legend() {
  std::string out;
  double x = left;
  for (auto const& part : parts()) {
    out +=
        fmt::format("<rect x='{:.1f}' y='30' width='12' height='12' fill='{}'/>\n", x, part.color);
    out += detail::svg_text(x + 16, 41, "start", part.name);
    x += 34 + 7.0 * static_cast<double>(std::string_view(part.name).size());
  }
  return out;
}

}  // namespace

std::string draw_plan(Planner const& planner, std::vector<PlannedChoice> const& choices) {
  std::vector<PlannedChoice> shown;
  for (auto const& p : choices)
    if (p.refused.empty()) shown.push_back(p);
  auto const& l = planner.request().limits;
  auto const limit = static_cast<double>(planner.computes_on_device() ? l.device - l.device_reserved
                                                                      : l.host - l.host_reserved);
  double most = 0.0, longest = 0.0;
  for (auto const& p : shown) {
    auto const& space = planner.computes_on_device() ? p.memory.device : p.memory.host;
    most = std::max(most, static_cast<double>(space.total()));
    if (p.time) longest = std::max(longest, p.time->seconds);
  }
  bool const has_times = longest > 0.0;
  double const width =
      std::max(760.0, left + right + 20 + pitch * static_cast<double>(shown.size()));
  double const height = top + panel + gap + (has_times ? panel + gap : 0.0) - 50;
  Panel const memory{top + 30 + panel, most}, time{memory.base + gap + panel, longest};
  std::string svg = detail::svg_start(width, height);
  svg += detail::svg_text(
      left, 20, "start",
      fmt::format("{}, {} parameters on {} ranks", planner.model().family(),
                  with_commas(planner.parameters()), planner.request().cluster.ranks()));
  svg += legend() +
         axis(memory, width,
              planner.computes_on_device() ? "device memory per rank" : "host memory per rank",
              [](double v) { return human_bytes(static_cast<std::int64_t>(v)); });
  svg += memory_bars(planner, memory, shown) + labels(memory, shown);
  if (limit > 0.0 && limit <= most)
    svg += fmt::format(
        "<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' stroke='#c00' stroke-dasharray='6 4'/>\n",
        left, memory.base - memory.length(limit), width - right,
        memory.base - memory.length(limit));
  if (has_times)
    svg += axis(time, width, "seconds per step; gray: does not fit",
                [](double v) { return fmt::format("{:.3g}", v); }) +
           time_bars(time, shown) + labels(time, shown);
  return svg + "</svg>\n";
}

}  // namespace tessera::plan
