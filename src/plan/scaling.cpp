#include "tessera/plan/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/config/node_groups.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/svg.hpp"
#include "tessera/core/text.hpp"

namespace tessera::plan {
namespace {

constexpr double no_limit = std::numeric_limits<double>::max();
/// A cost below this part of the step is no reason.
constexpr double negligible = 0.01;

/// The profile without one of its costs.
MachineProfile without_latency(MachineProfile m) {
  m.intra_node.latency = m.inter_node.latency = 0.0;
  m.protocols.clear();  // with less bandwidth
  return m;
}
MachineProfile without_transfer(MachineProfile m) {
  m.intra_node.bandwidth = m.inter_node.bandwidth = no_limit;
  return m;
}
MachineProfile without_update(MachineProfile m) {
  double const traffic = m.pass_traffic / m.memory_bandwidth;
  m.memory_bandwidth = m.host_memory_bandwidth = 1e30;
  m.pass_traffic = traffic * m.memory_bandwidth;  // traffic of the passes, which stays
  m.host_link = {0.0, 1e30};
  m.drive_read = m.drive_write = 1e30;
  return m;
}

std::vector<RankClass> classes_of(ScalingRequest const& request, Cluster const& cluster) {
  auto out = classes_with_jitter(cluster.ranks(), request.jitter);
  if (request.stragglers.ranks > 0) {
    auto slow = request.stragglers;
    slow.ranks = std::min<std::int64_t>(slow.ranks, cluster.ranks());
    out.push_back(slow);
  }
  return out;
}

/// The choice of @p nodes nodes; the error says why there is none.
Choice choice_of(ScalingRequest const& request, Choice given, int ranks, int first_ranks) {
  if (request.scaling == Scaling::weak) return given;
  std::int64_t const batch = given.micro_batch * given.accumulation * first_ranks;
  TESSERA_VALIDATE(batch % ranks == 0 && batch >= ranks, ConfigError, "a step has ",
                   counted(batch, "sequence"), ", which ", ranks, " ranks cannot divide evenly");
  std::int64_t const of_rank = batch / ranks;
  while (of_rank % given.micro_batch != 0) --given.micro_batch;
  given.accumulation = of_rank / given.micro_batch;
  return given;
}

ScalingPoint simulate_point(ScalingRequest const& request, Cluster const& cluster,
                            int first_ranks) {
  ScalingPoint out;
  out.cluster = cluster;
  auto plan = request.plan;
  plan.cluster = cluster;
  // the batch of the first point decides the choice, not that of this number of ranks
  Planner planner(std::move(plan));
  auto const& machine = *request.plan.machine;
  try {
    out.choice = choice_of(request, given_choice(request.plan.arguments, planner.given()),
                           cluster.ranks(), first_ranks);
    auto const classes = classes_of(request, cluster);
    std::vector<RankClass> const even{{.ranks = cluster.ranks()}};
    auto const times = planner.step_times(out.choice, {{machine, classes},
                                                       {without_latency(machine), classes},
                                                       {without_transfer(machine), classes},
                                                       {without_update(machine), classes},
                                                       {machine, even}});
    out.time = times[0];
    double const seconds = out.time.seconds;
    auto const saved = [&](std::size_t i) { return std::max(0.0, seconds - times[i].seconds); };
    out.costs = {saved(1), saved(2), saved(3), saved(4)};
    double const sequences = static_cast<double>(out.choice.micro_batch * out.choice.accumulation) *
                             config::mesh_of(planner.given()).data_size();
    out.tokens_per_second = sequences * static_cast<double>(planner.sequence()) / seconds;
    out.collectives = std::llround(out.time.collectives);
  } catch (ConfigError const& e) {
    out.refused = e.what();
  }
  return out;
}

std::string percent(double part) { return fmt::format("{:.1f} %", 100.0 * part); }

std::string step_time_text(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.2f} ms", 1e3 * seconds) : fmt::format("{:.4g} s", seconds);
}

}  // namespace

std::vector<ScalingPoint> scale(ScalingRequest const& request) {
  TESSERA_EXPECT(request.plan.machine && !request.nodes.empty());
  int const per_node = request.plan.cluster.ranks_per_node;
  int const first_ranks = request.nodes.front() * per_node;
  std::vector<ScalingPoint> out;
  double first_rate = 0.0;
  for (int const nodes : request.nodes) {
    auto point = simulate_point(request, {nodes, per_node}, first_ranks);
    if (point.refused.empty()) {
      double const rate = point.tokens_per_second / point.cluster.ranks();
      if (first_rate == 0.0) first_rate = rate;
      point.efficiency = rate / first_rate;
    }
    out.push_back(std::move(point));
  }
  return out;
}

std::size_t end_of_scaling(std::vector<ScalingPoint> const& points, double efficiency) {
  for (std::size_t i = 0; i < points.size(); ++i)
    if (!points[i].refused.empty() || points[i].efficiency < efficiency) return i;
  return points.size();
}

std::string reason_of(ScalingPoint const& point) {
  if (!point.refused.empty()) return point.refused;
  auto const& c = point.costs;
  auto const [cost, text] = std::max(
      {std::pair(c.latency,
                 fmt::format("latency of {} collectives per step on {} ranks; fewer micro-steps, a "
                             "lower stage or larger buckets need fewer of them",
                             point.collectives, point.cluster.ranks())),
       std::pair(c.bandwidth,
                 std::string("bandwidth of collectives; more tokens per rank and step, a lower "
                             "stage or 16-bit communication need less of it")),
       std::pair(c.update, std::string("the optimizer's update; a higher stage divides it among "
                                       "the ranks")),
       std::pair(c.slow_ranks, std::string("the slowest rank, for which all others wait"))});
  double const part = cost / point.time.seconds;
  if (part < negligible) return "nothing that counts";
  return fmt::format("{} of the step: {}", percent(part), text);
}

std::string table_text(std::vector<ScalingPoint> const& points, Scaling scaling) {
  std::string out = fmt::format("{:>8} {:>9} {:>9} {:>11} {:>12} {:>10} {:>9} {:>9} {:>9} {:>9}\n",
                                "nodes", "ranks", "micro", "step", "tokens/s", "efficiency",
                                "latency", "bandwidth", "update", "slow");
  for (auto const& p : points) {
    out += fmt::format("{:>8} {:>9}", p.cluster.nodes, p.cluster.ranks());
    if (!p.refused.empty()) {
      out += "  refused: " + p.refused + "\n";
      continue;
    }
    auto const part = [&](double cost) { return percent(cost / p.time.seconds); };
    out += fmt::format(" {:>9} {:>11} {:>12} {:>10} {:>9} {:>9} {:>9} {:>9}\n",
                       fmt::format("{} x {}", p.choice.micro_batch, p.choice.accumulation),
                       step_time_text(p.time.seconds), fmt::format("{:.5g}", p.tokens_per_second),
                       percent(p.efficiency), part(p.costs.latency), part(p.costs.bandwidth),
                       part(p.costs.update), part(p.costs.slow_ranks));
  }
  constexpr double kept = 0.8;
  auto const end = end_of_scaling(points, kept);
  char const* const name = scaling == Scaling::weak ? "Weak" : "Strong";
  if (end == points.size())
    return out + fmt::format("\n{} scaling keeps {} up to {} ranks.\n", name, percent(kept),
                             points.back().cluster.ranks());
  return out + fmt::format("\n{} scaling falls below {} at {} ranks: {}\n", name, percent(kept),
                           points[end].cluster.ranks(), reason_of(points[end]));
}

ConfigTree to_json(std::vector<ScalingPoint> const& points) {
  ConfigTree::Array out;
  for (auto const& p : points) {
    auto entry = ConfigTree::object().set("nodes", p.cluster.nodes).set("ranks", p.cluster.ranks());
    if (!p.refused.empty()) {
      out.push_back(entry.set("refused", p.refused));
      continue;
    }
    out.push_back(entry.set("stage", p.choice.stage)
                      .set("micro_batch", p.choice.micro_batch)
                      .set("accumulation", p.choice.accumulation)
                      .set("step", p.time.seconds)
                      .set("compute", p.time.compute)
                      .set("communication", p.time.communication)
                      .set("tokens_per_second", p.tokens_per_second)
                      .set("efficiency", p.efficiency)
                      .set("collectives", p.collectives)
                      .set("costs", ConfigTree::object()
                                        .set("latency", p.costs.latency)
                                        .set("bandwidth", p.costs.bandwidth)
                                        .set("update", p.costs.update)
                                        .set("slow_ranks", p.costs.slow_ranks))
                      .set("reason", reason_of(p)));
  }
  return out;
}

std::string draw_scaling(std::vector<ScalingPoint> const& points, Scaling scaling) {
  using Anchor = Svg::Anchor;
  constexpr double left = 80, top = 60, width = 520, height = 260, bottom = 50;
  double const first = std::log2(std::max(1, points.front().cluster.ranks()));
  double const last = std::max(first + 1.0, std::log2(points.back().cluster.ranks()));
  auto const x = [&](ScalingPoint const& p) {
    return left + width * (std::log2(p.cluster.ranks()) - first) / (last - first);
  };
  auto const y = [&](double part) { return top + height * (1.0 - std::min(part, 1.1) / 1.1); };
  Svg svg(left + width + 40, top + height + bottom);
  svg.text({left, 30}, Anchor::start,
           scaling == Scaling::weak ? "Weak scaling: efficiency and costs, parts of a step"
                                    : "Strong scaling: efficiency and costs, parts of a step");
  for (int i = 0; i <= 5; ++i) {
    svg.line({left, y(0.2 * i)}, {left + width, y(0.2 * i)}, "stroke='#ddd'");
    svg.text({left - 6, y(0.2 * i) + 4}, Anchor::end, fmt::format("{} %", 20 * i));
  }
  struct Line {
    char const *name, *color;
    double (*value)(ScalingPoint const&);
  };
  Line const lines[] = {
      {"efficiency", "#1f5f99", [](ScalingPoint const& p) { return p.efficiency; }},
      {"latency", "#e08e45",
       [](ScalingPoint const& p) { return p.costs.latency / p.time.seconds; }},
      {"bandwidth", "#2e8b57",
       [](ScalingPoint const& p) { return p.costs.bandwidth / p.time.seconds; }}};
  double legend = left;
  for (auto const& line : lines) {
    std::vector<Svg::Point> curve;
    for (auto const& p : points)
      if (p.refused.empty()) curve.push_back({x(p), y(line.value(p))});
    if (!curve.empty())
      svg.polyline(curve, fmt::format("stroke='{}' stroke-width='2'", line.color));
    svg.rectangle({legend, 40}, 12, 8, line.color);
    svg.text({legend + 18, 48}, Anchor::start, line.name);
    legend += 120;
  }
  for (auto const& p : points)
    svg.text({x(p), top + height + 18}, Anchor::middle, std::to_string(p.cluster.ranks()));
  svg.text({left + width / 2, top + height + 40}, Anchor::middle, "ranks");
  return svg.str();
}

}  // namespace tessera::plan
