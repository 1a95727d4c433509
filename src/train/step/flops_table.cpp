#include "tessera/train/step/flops_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/core/text.hpp"

namespace tessera::train {
namespace {

std::string scaled(double value) {
  constexpr char const* names[] = {"", " K", " M", " G", " T", " P"};
  std::size_t at = 0;
  for (; value >= 1000.0 && at + 1 < std::size(names); ++at) value /= 1000.0;
  return fmt::format("{:.4g}{}", value, names[at]);
}

double share(double part, double all) { return all > 0.0 ? 100.0 * part / all : 0.0; }

double seconds_of(UnitProfile const& unit) { return unit.time.forward + unit.time.backward; }

UnitProfile total_of(std::vector<UnitProfile> const& units) {
  UnitProfile total{"total", 0, 0.0, {}};
  for (auto const& unit : units) {
    total.parameters += unit.parameters;
    total.macs += unit.macs;
    total.time.forward += unit.time.forward;
    total.time.backward += unit.time.backward;
  }
  return total;
}

/// Two FLOP per multiply-accumulate, once forward, twice backward, and recomputed passes.
double flops(UnitProfile const& unit, config::FlopsProfiler const& options) {
  return 2.0 * unit.macs * (3.0 + options.recompute_factor);
}

std::string line(UnitProfile const& unit, UnitProfile const& total,
                 config::FlopsProfiler const& options) {
  double const seconds = seconds_of(unit);
  return fmt::format(
      "{:<12} {:>12} {:>5.1f} % {:>10} {:>5.1f} % {:>10.3f} {:>10.3f} {:>5.1f} % {:>10}\n",
      unit.name, with_commas(unit.parameters),
      share(static_cast<double>(unit.parameters), static_cast<double>(total.parameters)),
      scaled(unit.macs), share(unit.macs, total.macs), 1e3 * unit.time.forward,
      1e3 * unit.time.backward, share(seconds, seconds_of(total)),
      seconds > 0.0 ? scaled(flops(unit, options) / seconds) : "-");
}

std::string summary(UnitProfile const& total, ProfiledStep const& step,
                    config::FlopsProfiler const& options) {
  double const tokens = static_cast<double>(step.sequences * step.sequence_length);
  auto const& p = step.phases;
  double const seconds = p.data + p.forward + p.backward + p.step;
  std::string out =
      fmt::format("profile of step {} on rank 0 of {}: {} sequences of {} tokens\n", step.step,
                  counted(step.ranks, "rank"), step.sequences, step.sequence_length);
  out +=
      fmt::format("  parameters {}, forward {} MACs, step {} FLOP\n", with_commas(total.parameters),
                  scaled(total.macs), scaled(flops(total, options)));
  out += fmt::format(
      "  data {:.3f} ms, forward {:.3f} ms, backward {:.3f} ms, step {:.3f} ms; {} FLOPS, {:.0f} "
      "tokens/s per rank\n",
      1e3 * p.data, 1e3 * p.forward, 1e3 * p.backward, 1e3 * p.step,
      seconds > 0.0 ? scaled(flops(total, options) / seconds) : "-",
      seconds > 0.0 ? tokens / seconds : 0.0);
  return out;
}

}  // namespace

std::vector<UnitProfile> profile_units(std::vector<memory::UnitSpec> const& units,
                                       std::vector<UnitTime> const& times,
                                       ProfiledStep const& step) {
  double const sequences = static_cast<double>(step.sequences),
               length = static_cast<double>(step.sequence_length),
               hidden = static_cast<double>(step.hidden_size), tokens = sequences * length;
  std::vector<UnitProfile> out;
  for (std::size_t u = 0; u < units.size(); ++u) {
    bool const is_embedding = u == 0, is_head = u + 1 == units.size();
    UnitProfile unit{units[u].name, 0, 0.0, u < times.size() ? times[u] : UnitTime{}};
    for (auto const& parameter : units[u].parameters) {
      unit.parameters += parameter.numel();
      bool const is_matrix = parameter.shape.size() == 2;
      if (is_matrix && !is_embedding && !is_head)
        unit.macs += tokens * static_cast<double>(parameter.numel());
    }
    if (is_head) unit.macs = tokens * hidden * static_cast<double>(step.vocabulary);
    if (!is_embedding && !is_head) unit.macs += 2.0 * sequences * length * length * hidden;
    out.push_back(std::move(unit));
  }
  return out;
}

std::string flops_table(std::vector<UnitProfile> const& units, ProfiledStep const& step,
                        config::FlopsProfiler const& options) {
  UnitProfile const total = total_of(units);
  std::string out = summary(total, step, options);
  auto slowest = units;
  std::ranges::stable_sort(
      slowest, [](auto const& a, auto const& b) { return seconds_of(a) > seconds_of(b); });
  slowest.resize(std::min(slowest.size(), static_cast<std::size_t>(options.top_units)));
  for (auto const& unit : slowest)
    out += fmt::format("  slowest: {} {:.3f} ms\n", unit.name, 1e3 * seconds_of(unit));
  if (!options.detailed) return out;
  out += fmt::format("{:<12} {:>12} {:>7} {:>10} {:>7} {:>10} {:>10} {:>7} {:>10}\n", "unit",
                     "parameters", "share", "MACs", "share", "forward ms", "backw. ms", "time",
                     "FLOPS");
  for (auto const& unit : units) out += line(unit, total, options);
  return out + line(total, total, options);
}

}  // namespace tessera::train
