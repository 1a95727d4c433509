#include "bench_comm/comm_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/comm/base/traffic.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/svg.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

using comm::BenchmarkRow;
using Anchor = Svg::Anchor;

constexpr double panel_width = 250, panel_height = 180, gap = 70, top = 90;
constexpr int columns = 3;
constexpr char const* colors[] = {"#1f5f99", "#e08e45", "#2e8b57", "#8a4f9e"};

double bus_bandwidth(BenchmarkRow const& row, double seconds) {
  return static_cast<double>(row.bytes) * comm::bus_factor(row.operation, row.ranks) / seconds;
}

std::string where_text(CommSetting const& s) {
  return fmt::format("{} on {} ({}), {}, {}, collectives {}; {}", counted(s.ranks, "rank"),
                     counted(s.nodes, "node"), s.host, s.memory, s.dtype, s.collectives, s.mpi);
}

/// The distinct values of a field, in order of appearance.
std::vector<std::string> distinct(std::vector<BenchmarkRow> const& rows,
                                  std::string BenchmarkRow::*field) {
  std::vector<std::string> out;
  for (auto const& row : rows)
    if (std::ranges::count(out, row.*field) == 0) out.push_back(row.*field);
  return out;
}

std::string row_text(BenchmarkRow const& row) {
  double const gigabytes = 1e-9 * static_cast<double>(row.bytes) / row.median_seconds;
  bool const has_mpi = row.mpi_median_seconds > 0.0;
  return fmt::format(
      "{:<14} {:>10} {:>6} {:>12.1f} {:>12.1f} {:>11.3f} {:>11.3f} {:>12} {:>9} {:>7}\n",
      row.operation, human_bytes(static_cast<std::int64_t>(row.bytes)), row.repetitions,
      1e6 * row.median_seconds, 1e6 * row.least_seconds, gigabytes,
      1e-9 * bus_bandwidth(row, row.median_seconds),
      has_mpi ? fmt::format("{:.1f}", 1e6 * row.mpi_median_seconds) : "-",
      has_mpi ? fmt::format("{:.2f}", row.mpi_median_seconds / row.median_seconds) : "-",
      row.wrong);
}

/// Logarithmic axes: message size in powers of two, bus bandwidth in powers of ten.
struct Axes {
  double least_bytes = 1.0, most_bytes = 2.0, least_rate = 1.0, most_rate = 10.0;
  double x(double bytes) const {
    double const span = std::max(1.0, std::log2(most_bytes / least_bytes));
    return panel_width * std::log2(bytes / least_bytes) / span;
  }
  double y(double rate) const {
    return panel_height *
           (1.0 - std::log10(rate / least_rate) / std::log10(most_rate / least_rate));
  }
};

Axes axes_of(std::vector<BenchmarkRow> const& rows) {
  Axes out{1e300, 1.0, 1e300, 1.0};
  for (auto const& row : rows) {
    out.least_bytes = std::min(out.least_bytes, static_cast<double>(row.bytes));
    out.most_bytes = std::max(out.most_bytes, static_cast<double>(row.bytes));
    for (double const seconds : {row.median_seconds, row.mpi_median_seconds}) {
      double const rate = seconds > 0.0 ? bus_bandwidth(row, seconds) : 0.0;
      if (rate <= 0.0) continue;
      out.least_rate = std::min(out.least_rate, rate);
      out.most_rate = std::max(out.most_rate, rate);
    }
  }
  out.least_rate = std::pow(10.0, std::floor(std::log10(out.least_rate)));
  out.most_rate =
      std::max(10.0 * out.least_rate, std::pow(10.0, std::ceil(std::log10(out.most_rate) - 1e-9)));
  return out;
}

void draw_frame(Svg& svg, Axes const& axes, std::string const& title) {
  svg.text({0, -8}, Anchor::start, title, "font-size='13'");
  for (double rate = axes.least_rate; rate <= axes.most_rate * 1.01; rate *= 10.0) {
    svg.line({0, axes.y(rate)}, {panel_width, axes.y(rate)}, "stroke='#ddd'");
    svg.text({-6, axes.y(rate) + 4}, Anchor::end, fmt::format("{:g}", rate * 1e-9));
  }
  for (double const bytes : {axes.least_bytes, axes.most_bytes})
    svg.text({axes.x(bytes), panel_height + 16}, Anchor::middle,
             human_bytes(static_cast<std::int64_t>(bytes)));
}

/// The curves of one operation in one group; those of the MPI library are dashed.
void draw_curves(Svg& svg, Axes const& axes, std::vector<BenchmarkRow> const& rows,
                 std::string const& operation, std::string const& group, char const* color) {
  std::vector<Svg::Point> own, of_mpi;
  for (auto const& row : rows) {
    if (row.operation != operation || row.group != group || row.ranks < 2) continue;
    double const x = axes.x(static_cast<double>(row.bytes));
    own.push_back({x, axes.y(bus_bandwidth(row, row.median_seconds))});
    if (row.mpi_median_seconds > 0.0)
      of_mpi.push_back({x, axes.y(bus_bandwidth(row, row.mpi_median_seconds))});
  }
  auto const style = fmt::format("stroke='{}' stroke-width='2'", color);
  if (!own.empty()) svg.polyline(own, style);
  if (!of_mpi.empty()) svg.polyline(of_mpi, style + " stroke-dasharray='5 4'");
}

void draw_legend(Svg& svg, std::vector<std::string> const& groups) {
  double x = 60;
  for (std::size_t i = 0; i < groups.size(); ++i, x += 130) {
    svg.rectangle({x, 46}, 12, 12, colors[i % std::size(colors)]);
    svg.text({x + 18, 56}, Anchor::start, groups[i]);
  }
  svg.text({x, 56}, Anchor::start, "dashed: the MPI library");
}

}  // namespace

std::string comm_table(CommSetting const& setting, std::vector<BenchmarkRow> const& rows) {
  std::string out = where_text(setting) + "\n";
  for (auto const& group : distinct(rows, &BenchmarkRow::group)) {
    auto const first = std::ranges::find(rows, group, &BenchmarkRow::group);
    out += fmt::format("\ngroup {}: {}\n", group, counted(first->ranks, "rank"));
    out += fmt::format("{:<14} {:>10} {:>6} {:>12} {:>12} {:>11} {:>11} {:>12} {:>9} {:>7}\n",
                       "operation", "message", "count", "median us", "least us", "algbw GB/s",
                       "busbw GB/s", "MPI us", "MPI/own", "wrong");
    for (auto const& row : rows)
      if (row.group == group) out += row_text(row);
  }
  return out;
}

ConfigTree comm_json(CommSetting const& setting, std::vector<BenchmarkRow> const& rows) {
  ConfigTree::Array list;
  for (auto const& row : rows) {
    auto entry = ConfigTree::object()
                     .set("operation", row.operation)
                     .set("group", row.group)
                     .set("ranks", row.ranks)
                     .set("bytes", static_cast<std::int64_t>(row.bytes))
                     .set("repetitions", row.repetitions)
                     .set("median_seconds", row.median_seconds)
                     .set("least_seconds", row.least_seconds)
                     .set("bus_bandwidth", bus_bandwidth(row, row.median_seconds))
                     .set("wrong", row.wrong);
    if (row.mpi_median_seconds > 0.0) entry.set("mpi_median_seconds", row.mpi_median_seconds);
    list.push_back(std::move(entry));
  }
  return ConfigTree::object()
      .set("ranks", setting.ranks)
      .set("nodes", setting.nodes)
      .set("host", setting.host)
      .set("memory", setting.memory)
      .set("collectives", setting.collectives)
      .set("mpi", setting.mpi)
      .set("dtype", setting.dtype)
      .set("rows", std::move(list));
}

std::string draw_comm(CommSetting const& setting, std::vector<BenchmarkRow> const& rows) {
  auto const operations = distinct(rows, &BenchmarkRow::operation);
  auto const groups = distinct(rows, &BenchmarkRow::group);
  auto const axes = axes_of(rows);
  int const lines = ceil_divide(static_cast<int>(operations.size()), columns);
  Svg svg(60 + columns * (panel_width + gap), top + lines * (panel_height + gap));
  svg.text({60, 30}, Anchor::start, "Bus bandwidth (GB/s) by message size: " + where_text(setting),
           "font-size='15'");
  draw_legend(svg, groups);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    std::size_t const column = i % columns, line = i / columns;
    svg.move_origin({60 + static_cast<double>(column) * (panel_width + gap),
                     top + 10 + static_cast<double>(line) * (panel_height + gap)});
    draw_frame(svg, axes, operations[i]);
    for (std::size_t g = 0; g < groups.size(); ++g)
      draw_curves(svg, axes, rows, operations[i], groups[g], colors[g % std::size(colors)]);
  }
  return svg.str();
}

}  // namespace tessera::cli
