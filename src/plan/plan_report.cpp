#include "tessera/plan/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tessera/core/error.hpp"
#include "tessera/core/svg.hpp"
#include "tessera/core/text.hpp"
#include "tessera/plan/run_time.hpp"
#include "tessera/plan/shard_groups.hpp"

namespace tessera::plan {
namespace {

using memory::Purpose;

std::string size_text(double bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }
std::string size_text(std::int64_t bytes) { return human_bytes(bytes); }

/// Purposes of the table's columns; what is left is in the last one.
struct Columns {
  double weights = 0, gradients = 0, optimizer = 0, buffers = 0, activations = 0;
};

Columns columns_of(train::PlannedSpace const& space) {
  Columns out;
  for (auto const& [purpose, bytes] : space.bytes) {
    auto const n = static_cast<double>(bytes);
    if (purpose == Purpose::weights)
      out.weights += n;
    else if (purpose == Purpose::gradients)
      out.gradients += n;
    else if (purpose == Purpose::master_weights || purpose == Purpose::optimizer_state)
      out.optimizer += n;
    else if (purpose == Purpose::activations)
      out.activations += n;
    else
      out.buffers += n;
  }
  return out;
}

train::PlannedSpace const& compute_space(Planner const& planner, PlannedChoice const& p) {
  return planner.computes_on_device() ? p.memory.device : p.memory.host;
}

std::string offload_text(Choice const& c) {
  if (c.parameters != config::OffloadDevice::none)
    return fmt::format("{}, params", config::name_of(c.optimizer));
  return c.optimizer == config::OffloadDevice::none ? "-" : config::name_of(c.optimizer);
}

std::string time_text(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.1f} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

/// Whether the memory in which the model computes has a limit.
bool has_limit(Planner const& planner) {
  auto const& limits = planner.request().limits;
  return (planner.computes_on_device() ? limits.device : limits.host) > 0;
}

/// Whether shard groups are a choice.
bool has_groups(Planner const& planner) {
  return !shard_group_sizes(planner.request().cluster).empty();
}

std::string row(Planner const& planner, PlannedChoice const& p, PlannedChoice const* best) {
  auto const& c = p.choice;
  auto out = fmt::format("{:>5} ", c.stage);
  if (has_groups(planner))
    out += fmt::format("{:>6} ", c.shard_group > 0 ? std::to_string(c.shard_group) : "-");
  out += fmt::format(" {:<12} {:>9} {:>9}", offload_text(c), name_of(c.recompute),
                     fmt::format("{} x {}", c.micro_batch, c.accumulation));
  if (!p.refused.empty()) return out + "  refused: " + p.refused + "\n";
  auto const m = columns_of(compute_space(planner, p));
  out += fmt::format(" {:>10} {:>10} {:>10} {:>10} {:>11}", size_text(m.weights),
                     size_text(m.gradients), size_text(m.optimizer), size_text(m.buffers),
                     size_text(m.activations));
  if (planner.computes_on_device()) out += fmt::format(" {:>10}", size_text(p.device_bytes));
  out += fmt::format(" {:>10}", size_text(p.host_bytes));
  if (planner.request().limits.nvme > 0) out += fmt::format(" {:>10}", size_text(p.nvme_bytes));
  out += fmt::format(" {:>10}", size_text(p.wire.total()));
  if (p.time)
    out += fmt::format(" {:>9} {:>10}", time_text(p.time->seconds),
                       fmt::format("{:.4g}", p.tokens_per_second));
  std::string const fits = has_limit(planner) ? "  fits" : "";
  return out + (!p.fits ? "  too large" : &p == best ? fits + "  <- recommended" : fits) + "\n";
}

std::string header(Planner const& planner) {
  std::string out = fmt::format("{:>5} ", "stage");
  if (has_groups(planner)) out += fmt::format("{:>6} ", "groups");
  out +=
      fmt::format(" {:<12} {:>9} {:>9} {:>10} {:>10} {:>10} {:>10} {:>11}", "offload", "recompute",
                  "micro", "weights", "gradients", "optimizer", "buffers", "activations");
  if (planner.computes_on_device()) out += fmt::format(" {:>10}", "device");
  out += fmt::format(" {:>10}", "host");
  if (planner.request().limits.nvme > 0) out += fmt::format(" {:>10}", "NVMe");
  out += fmt::format(" {:>10}", "sent/step");
  if (planner.request().machine) out += fmt::format(" {:>9} {:>10}", "step", "tokens/s");
  return out + "\n";
}

std::string limit_text(char const* what, std::int64_t limit, std::int64_t reserved) {
  if (limit == 0) return "";
  return fmt::format(", {} {}{}", what, size_text(limit),
                     reserved > 0 ? fmt::format(" ({} of it for the process)", size_text(reserved))
                                  : std::string());
}

std::string title(Planner const& planner) {
  auto const& request = planner.request();
  auto const& given = planner.given();
  auto const& l = request.limits;
  bool const device = planner.computes_on_device();
  std::string out =
      fmt::format("{}, {} parameters, {}; {} ({} x {}); {} sequences of {} tokens per step\n",
                  planner.model().family(), with_commas(planner.parameters()),
                  given.optimizer.algorithm, counted(request.cluster.ranks(), "rank"),
                  counted(request.cluster.nodes, "node"), request.cluster.ranks_per_node,
                  with_commas(given.train_batch_size), with_commas(planner.sequence()));
  out += fmt::format("per rank{}{}{}; checkpoint {}",
                     limit_text("device", l.device, device ? l.device_reserved : 0),
                     limit_text("host", l.host, l.host_reserved), limit_text("NVMe", l.nvme, 0),
                     size_text(planner.checkpoint_bytes()));
  if (request.machine)
    out += fmt::format("; times of {}{}", request.machine->name,
                       request.machine->measured ? "" : ", which is not measured");
  return out + "\n\n";
}

/// "12 h 30 m", and node-hours.
std::string duration_text(Planner const& planner, PlannedChoice const& p) {
  double const steps = planner.steps();
  if (!p.time || steps <= 0.0) return "";
  double const seconds = steps * p.time->seconds;
  return fmt::format("; {:.0f} steps take {} and {:.4g} node-hours", steps, human_duration(seconds),
                     seconds / 3600.0 * planner.request().cluster.nodes);
}

std::optional<CheckpointAdvice> advice_of(Planner const& planner) {
  auto const& request = planner.request();
  if (!request.machine) return std::nullopt;
  return checkpoint_advice(planner.checkpoint_bytes(), request.cluster, *request.machine);
}

/// "  Save every 300 steps ...".
std::string advice_text(Planner const& planner, PlannedChoice const& best) {
  auto const advice = advice_of(planner);
  if (!advice) return "";
  auto const seconds = human_duration(advice->save_seconds);
  if (advice->interval <= 0.0 || !best.time)
    return fmt::format("  A save takes {}, if it blocks training\n", seconds);
  return fmt::format(
      "  A save takes {}, if it blocks training: --save_steps {:.0f} ({}) loses least to saves and "
      "failures, {:.2g} % of the time\n",
      seconds, std::max(1.0, std::round(advice->interval / best.time->seconds)),
      human_duration(advice->interval), 100.0 * advice->lost);
}

/// Names the faster steps of the ladder and what they would need.
std::string why_not_faster(Planner const& planner, std::vector<PlannedChoice> const& choices,
                           PlannedChoice const& best) {
  std::string out;
  std::string last;
  for (auto const& p : choices) {
    if (&p == &best || !is_faster_by_the_guides(p.choice, best.choice) || !p.refused.empty())
      continue;
    auto const step = ladder_step_of(p.choice) +
                      (p.choice.recompute == Recompute::none
                           ? ""
                           : fmt::format(", recompute {}", name_of(p.choice.recompute)));
    if (step == last) continue;
    last = step;
    auto const need = planner.computes_on_device() ? p.device_bytes : p.host_bytes;
    if (!p.fits)
      out += fmt::format("  {} needs {}\n", step, size_text(need));
    else if (p.time && best.time)
      out += fmt::format("  {} fits, but takes {} per step\n", step, time_text(p.time->seconds));
  }
  return out;
}

ConfigTree json_of(train::PlannedSpace const& space) {
  auto out = ConfigTree::object();
  for (auto const& [purpose, bytes] : space.bytes)
    if (bytes > 0) out.set(std::string(memory::name_of(purpose)), static_cast<std::int64_t>(bytes));
  return out.set("total", static_cast<std::int64_t>(space.total()));
}

ConfigTree json_of(PlannedChoice const& p) {
  auto const& c = p.choice;
  auto out = ConfigTree::object()
                 .set("stage", c.stage)
                 .set("offload_optimizer", config::name_of(c.optimizer))
                 .set("offload_param", config::name_of(c.parameters))
                 .set("recompute", name_of(c.recompute))
                 .set("gradient_checkpointing", c.recompute == Recompute::block)
                 .set("micro_batch_size", c.micro_batch)
                 .set("gradient_accumulation_steps", c.accumulation);
  if (c.shard_group > 0) out.set("mics_shard_size", c.shard_group);
  if (!p.refused.empty()) return out.set("refused", p.refused);
  out.set("device", json_of(p.memory.device))
      .set("host", json_of(p.memory.host))
      .set("saving", static_cast<std::int64_t>(p.memory.saving))
      .set("device_bytes", p.device_bytes)
      .set("host_bytes", p.host_bytes)
      .set("nvme_bytes", p.nvme_bytes)
      .set("fits", p.fits)
      .set("wire", ConfigTree::object()
                       .set("intra_node", p.wire.intra_node)
                       .set("inter_node", p.wire.inter_node));
  if (p.time)
    out.set("time", ConfigTree::object()
                        .set("step", p.time->seconds)
                        .set("compute", p.time->compute)
                        .set("update", p.time->update)
                        .set("communication", p.time->communication)
                        .set("transfers", p.time->transfers)
                        .set("exposed", p.time->exposed()))
        .set("tokens_per_second", p.tokens_per_second);
  return out;
}

}  // namespace

std::string table_text(Planner const& planner, std::vector<PlannedChoice> const& choices) {
  std::string out = title(planner) + header(planner);
  auto const* const best = recommended(choices);
  for (auto const& p : choices) out += row(planner, p, best);
  return out;
}

std::string ladder_text(Planner const& planner, std::vector<LadderStep> const& steps) {
  std::string out = "The ladder; each step keeps those before it:\n";
  for (auto const& step : steps) {
    auto const& p = step.planned;
    if (!p.refused.empty()) {
      out += fmt::format("  {:>10}  {}: refused, {}\n", "-", step.change, p.refused);
      continue;
    }
    auto const need = planner.computes_on_device() ? p.device_bytes : p.host_bytes;
    out += fmt::format("  {:>10} {}{}  {}\n", size_text(need),
                       p.time ? fmt::format("{:>10} ", time_text(p.time->seconds)) : "",
                       !p.fits              ? "too large"
                       : has_limit(planner) ? "     fits"
                                            : "         ",
                       step.change);
  }
  return out;
}

std::string recommendation_text(Planner const& planner, std::vector<PlannedChoice> const& choices,
                                PlannedChoice const& best) {
  std::string out = fmt::format("Recommended: {}", text_of(best.choice));
  if (best.time)
    out += fmt::format(": {} per step, {:.4g} tokens/s, {:.3g} % of the step waits",
                       time_text(best.time->seconds), best.tokens_per_second,
                       100.0 * std::max(0.0, best.time->exposed()) / best.time->seconds);
  out += duration_text(planner, best) + "\n";
  if (!has_limit(planner))
    out += fmt::format("  Nothing says how much memory a rank has; give --{}_memory or --machine\n",
                       planner.computes_on_device() ? "device" : "host");
  out += "  Speed: stage 0 > 1 > 2 > 2 + offload > 3 > 3 + offload; memory in reverse order\n";
  return out + why_not_faster(planner, choices, best) + advice_text(planner, best);
}

ConfigTree to_json(Planner const& planner, std::vector<PlannedChoice> const& choices,
                   std::vector<LadderStep> const& ladder, PlannedChoice const* best) {
  auto const& request = planner.request();
  ConfigTree::Array list, steps;
  for (auto const& p : choices) list.push_back(json_of(p));
  for (auto const& step : ladder)
    steps.push_back(
        ConfigTree::object().set("change", step.change).set("choice", json_of(step.planned)));
  auto const& l = request.limits;
  auto out =
      ConfigTree::object()
          .set("family", std::string(planner.model().family()))
          .set("parameters", planner.parameters())
          .set("nodes", request.cluster.nodes)
          .set("ranks_per_node", request.cluster.ranks_per_node)
          .set("train_batch_size", planner.given().train_batch_size)
          .set("sequence", planner.sequence())
          .set("checkpoint_bytes", static_cast<std::int64_t>(planner.checkpoint_bytes()))
          .set("limits",
               ConfigTree::object().set("device", l.device).set("host", l.host).set("nvme", l.nvme))
          .set("choices", std::move(list))
          .set("ladder", std::move(steps));
  if (request.machine)
    out.set("machine", ConfigTree::object()
                           .set("name", request.machine->name)
                           .set("measured", request.machine->measured));
  if (auto const advice = advice_of(planner))
    out.set("saving", ConfigTree::object()
                          .set("seconds", advice->save_seconds)
                          .set("interval", advice->interval)
                          .set("lost", advice->lost));
  if (best) out.set("recommended", json_of(*best));
  return out;
}

std::vector<std::string> training_words(std::vector<std::string> const& words,
                                        config::TrainingArguments const& arguments,
                                        Choice const& choice, std::string const& deepspeed) {
  constexpr char const* decided[] = {"deepspeed", "per_device_train_batch_size",
                                     "gradient_accumulation_steps", "gradient_checkpointing",
                                     "recompute"};
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto name = words[i].substr(0, words[i].find('='));
    std::replace(name.begin(), name.end(), '-', '_');
    bool const is_decided = std::any_of(std::begin(decided), std::end(decided),
                                        [&](auto const* d) { return name == concat("__", d); });
    if (!is_decided) {
      out.push_back(words[i]);
      continue;
    }
    bool const has_value = words[i].find('=') == std::string::npos && i + 1 < words.size() &&
                           !words[i + 1].starts_with("--");
    if (has_value) ++i;
  }
  if (!arguments.given("fsdp")) out.insert(out.end(), {"--deepspeed", deepspeed});
  out.insert(out.end(), {"--per_device_train_batch_size", std::to_string(choice.micro_batch),
                         "--gradient_accumulation_steps", std::to_string(choice.accumulation)});
  if (choice.recompute == Recompute::block) out.emplace_back("--gradient_checkpointing");
  if (choice.recompute == Recompute::light) out.insert(out.end(), {"--recompute", "light"});
  return out;
}

namespace {

using memory::Purpose;
using Anchor = Svg::Anchor;

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

void draw_axis(Svg& svg, Panel const& p, double width, std::string const& title,
               std::string (*value_text)(double)) {
  svg.text({left, p.base - panel - 14}, Anchor::start, title);
  for (int i = 0; i <= 4; ++i) {
    double const value = p.highest * i / 4.0, y = p.base - p.length(value);
    svg.line({left, y}, {width - right, y}, "stroke='#ddd'");
    svg.text({left - 6, y + 4}, Anchor::end, value_text(value));
  }
}

void draw_labels(Svg& svg, Panel const& p, std::vector<PlannedChoice> const& shown) {
  for (std::size_t i = 0; i < shown.size(); ++i) {
    auto const& c = shown[i].choice;
    auto const label = [&](double below, std::string const& words) {
      double const x = left + 20 + pitch * static_cast<double>(i) + bar / 2;
      svg.text({x, p.base + below}, Anchor::middle, words);
    };
    label(16, fmt::format("stage {}", c.stage));
    if (c.offloads()) label(32, "offload");
    if (c.shard_group > 0) label(32, fmt::format("groups of {}", c.shard_group));
    if (c.recompute != Recompute::none)
      label(48, fmt::format("recompute {}", name_of(c.recompute)));
    label(64, fmt::format("{} x {}", c.micro_batch, c.accumulation));
  }
}

void draw_memory(Svg& svg, Planner const& planner, Panel const& p,
                 std::vector<PlannedChoice> const& shown) {
  for (std::size_t i = 0; i < shown.size(); ++i) {
    auto const& space =
        planner.computes_on_device() ? shown[i].memory.device : shown[i].memory.host;
    double y = p.base;
    for (auto const& part : parts()) {
      double const length = p.length(bytes_of(space, part));
      if (length <= 0.0) continue;
      y -= length;
      svg.rectangle({left + 20 + pitch * static_cast<double>(i), y}, bar, length, part.color);
    }
  }
}

void draw_times(Svg& svg, Panel const& p, std::vector<PlannedChoice> const& shown) {
  for (std::size_t i = 0; i < shown.size(); ++i) {
    double const length = p.length(shown[i].time->seconds);
    svg.rectangle({left + 20 + pitch * static_cast<double>(i), p.base - length}, bar, length,
                  shown[i].fits ? "#1f5f99" : "#c8c8c8");
  }
}

void draw_legend(Svg& svg) {
  double x = left;
  for (auto const& part : parts()) {
    svg.rectangle({x, 30}, 12, 12, part.color);
    svg.text({x + 16, 41}, Anchor::start, part.name);
    x += 34 + 7.0 * static_cast<double>(std::string_view(part.name).size());
  }
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
  Svg svg(width, height);
  svg.text({left, 20}, Anchor::start,
           fmt::format("{}, {} parameters on {} ranks", planner.model().family(),
                       with_commas(planner.parameters()), planner.request().cluster.ranks()));
  draw_legend(svg);
  draw_axis(svg, memory, width,
            planner.computes_on_device() ? "device memory per rank" : "host memory per rank",
            [](double v) { return human_bytes(static_cast<std::int64_t>(v)); });
  draw_memory(svg, planner, memory, shown);
  draw_labels(svg, memory, shown);
  if (double const y = memory.base - memory.length(limit); limit > 0.0 && limit <= most)
    svg.line({left, y}, {width - right, y}, "stroke='#c00' stroke-dasharray='6 4'");
  if (has_times) {
    draw_axis(svg, time, width, "seconds per step; gray: does not fit",
              [](double v) { return fmt::format("{:.3g}", v); });
    draw_times(svg, time, shown);
    draw_labels(svg, time, shown);
  }
  return svg.str();
}

}  // namespace tessera::plan
