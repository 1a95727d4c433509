#include "commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "installation.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/words.hpp"
#include "tessera/plan/run_time.hpp"
#include "tessera/plan/scaling.hpp"
#include "tessera/plan/shard_groups.hpp"

namespace tessera::cli {
namespace {

constexpr int most_nodes = 1'000'000;

struct SimulateArguments {
  std::string machine, nodes = "1:1024", scaling = "weak", json, plot;
  std::optional<int> gpus;
  double jitter = 0.0, slow_by = 1.0, train_tokens = 0.0, restart_seconds = 60.0;
  int slow_ranks = 0;
  std::vector<std::string> words;
};

int node_count(std::string const& text) {
  int number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  TESSERA_VALIDATE(error == std::errc() && end == text.data() + text.size() && number >= 1 &&
                       number <= most_nodes,
                   UsageError, "--nodes: '", text, "' is not a number of nodes; write 1,2,4 or ",
                   "1:1024, which doubles");
  return number;
}

plan::ScalingRequest request_of(SimulateArguments const& a) {
  plan::ScalingRequest out;
  out.plan.arguments = config::parse_options(a.words);
  out.plan.machine = find_machine(a.machine);
  auto const& machine = *out.plan.machine;
  if (!machine.has_device) out.plan.arguments.use_cpu = true;
  out.plan.limits = limits_of(&machine);
  out.nodes = parse_node_counts(a.nodes);
  out.plan.cluster = {out.nodes.front(), a.gpus.value_or(machine.ranks_per_node)};
  out.plan.train_tokens = a.train_tokens;
  out.scaling = a.scaling == "weak" ? plan::Scaling::weak : plan::Scaling::strong;
  out.jitter = a.jitter;
  TESSERA_VALIDATE(a.slow_ranks == 0 || a.slow_by > 1.0, UsageError, "--slow_ranks ", a.slow_ranks,
                   " needs --slow_by with a factor above 1, such as 1.2");
  TESSERA_VALIDATE(a.slow_ranks <= out.plan.cluster.ranks(), UsageError, "--slow_ranks is ",
                   a.slow_ranks, ", more than the ", counted(out.plan.cluster.ranks(), "rank"),
                   " of ", counted(out.nodes.front(), "node"),
                   "; use fewer, or --nodes that start higher");
  out.stragglers = {.ranks = a.slow_ranks, .compute = a.slow_by};
  return out;
}

/// "100 B tokens on 512 ranks: 12 d, with 9 failures 12 d 3 h; save every ..."
std::string duration_text(SimulateArguments const& a, plan::ScalingRequest const& request,
                          plan::ScalingPoint const& point) {
  if (a.train_tokens <= 0.0 || !point.refused.empty()) return "";
  double const work = a.train_tokens / point.tokens_per_second;
  auto out = fmt::format("{:.4g} tokens on {}: {}", a.train_tokens,
                         counted(point.cluster.ranks(), "rank"), human_duration(work));
  auto plan = request.plan;
  plan.cluster = point.cluster;
  plan::Planner const planner(std::move(plan));
  auto const& machine = *request.plan.machine;
  auto const advice = plan::checkpoint_advice(planner.checkpoint_bytes(), point.cluster, machine);
  if (!advice || advice->interval <= 0.0) return out + "\n";
  plan::RunPlan const run{work, advice->interval, advice->save_seconds, a.restart_seconds,
                          3600.0 * machine.node_failure_hours / point.cluster.nodes};
  auto const drawn = plan::simulate_run(run, 1);
  return out + fmt::format("; with a save every {} and {}: {}, expected {}\n",
                           human_duration(run.interval), counted(drawn.failures, "failure"),
                           human_duration(drawn.seconds),
                           human_duration(plan::expected_duration(run)));
}

/// Says on which numbers of nodes the run exceeds the memory of the profile.
std::string too_large_text(plan::ScalingRequest const& request,
                           std::vector<plan::ScalingPoint> const& points) {
  std::vector<std::string> nodes;
  std::string need;
  for (auto const& point : points) {
    if (!point.refused.empty()) continue;
    auto request_of_point = request.plan;
    request_of_point.cluster = point.cluster;
    plan::Planner planner(std::move(request_of_point));
    auto const& planned = planner.evaluate(point.choice);
    if (planned.fits || !planned.refused.empty()) continue;
    if (nodes.empty()) need = plan::need_text(planned, request.plan.limits);
    nodes.push_back(std::to_string(point.cluster.nodes));
  }
  if (nodes.empty()) return "";
  return concat("Does not fit on ", join(nodes, ", "), nodes.size() == 1 ? " node" : " nodes",
                ": it needs ", need, " per rank on ", nodes.front(),
                "; tessera plan shows what fits.\n");
}

/// Stage 3 of the last point that runs in groups of each size; JSON of the same in @p out.
std::string advise_groups(plan::ScalingRequest const& request,
                          std::vector<plan::ScalingPoint> const& points, ConfigTree& out) {
  auto const last =
      std::find_if(points.rbegin(), points.rend(), [](auto const& p) { return p.refused.empty(); });
  if (last == points.rend() || last->choice.stage != 3 || last->choice.offloads()) return "";
  auto plan = request.plan;
  plan.cluster = last->cluster;
  plan::Planner planner(std::move(plan));
  if (planner.given().shard_group_size > 0 || planner.given().secondary_group_size > 1) return "";
  auto const groups = plan::weigh_shard_groups(planner, last->choice);
  out.set("shard_groups", plan::shard_groups_json(planner, groups));
  auto const text = plan::shard_groups_text(planner, groups);
  return text.empty() ? text : "\n" + text;
}

void simulate(SimulateArguments const& a) {
  auto const request = request_of(a);
  auto const points = plan::scale(request);
  auto const& machine = *request.plan.machine;
  fmt::print("{}{}\n\n{}", machine.name, machine.measured ? "" : ", which is not measured",
             plan::table_text(points, request.scaling));
  fmt::print("{}", too_large_text(request, points));
  for (auto const& point : points) fmt::print("{}", duration_text(a, request, point));
  auto json = ConfigTree::object()
                  .set("machine", machine.name)
                  .set("scaling", a.scaling)
                  .set("points", plan::to_json(points));
  fmt::print("{}", advise_groups(request, points, json));
  if (!a.json.empty()) write_file_atomically(a.json, json.dump(2) + "\n");
  if (!a.plot.empty()) write_file_atomically(a.plot, plan::draw_scaling(points, request.scaling));
  if (std::all_of(points.begin(), points.end(), [](auto const& p) { return !p.refused.empty(); }))
    throw ConfigError(points.front().refused);
}

void add_options(Command& app, SimulateArguments& a) {
  app.add("--machine MACHINE", a.machine,
          "machine profile: a file of tessera selftest --profile, or the name of a shipped "
          "example such as h200")
      .required();
  app.add("--nodes COUNTS", a.nodes, "numbers of nodes: 1,2,4 or 1:1024, which doubles");
  app.add("--gpus_per_node", a.gpus, "ranks per node (default: those of the machine profile)")
      .between(1, 1024);
  app.add("--scaling", a.scaling,
          "weak: each rank keeps its batch; strong: the batch of a step stays")
      .one_of({"weak", "strong"});
  app.add("--jitter", a.jitter, "standard deviation of the ranks' speed, in parts of it: 0.01")
      .between(0.0, 1.0);
  app.add("--slow_ranks", a.slow_ranks, "ranks that are slower than the others").at_least(1);
  app.add("--slow_by", a.slow_by, "factor of the time of their compute work").at_least(1);
  app.add("--train_tokens", a.train_tokens,
          "tokens of the training, for its duration with saves and failures")
      .at_least(1);
  app.add("--restart_seconds", a.restart_seconds, "from a failure of a node to the next step")
      .at_least(0);
  app.add("--json FILE", a.json, "JSON file to write");
  app.add("--plot FILE", a.plot, "SVG file to write: efficiency by ranks");
  app.add_rest("options", a.words, "options of tessera-train that name the model and the run",
               Command::Rest::training);
}

}  // namespace

std::vector<int> parse_node_counts(std::string const& text) {
  TESSERA_VALIDATE(!text.empty(), UsageError, "--nodes is empty; write 1,2,4 or 1:1024");
  std::vector<int> out;
  if (auto const colon = text.find(':'); colon != std::string::npos) {
    int const last = node_count(text.substr(colon + 1));
    for (std::int64_t n = node_count(text.substr(0, colon)); n <= last; n *= 2)
      out.push_back(static_cast<int>(n));
    TESSERA_VALIDATE(!out.empty(), UsageError, "--nodes: ", text, " is an empty range");
    return out;
  }
  for (auto const& part : split(text, ',')) {
    out.push_back(node_count(part));
    TESSERA_VALIDATE(out.size() < 2 || out[out.size() - 2] < out.back(), UsageError,
                     "--nodes: ", text, " must ascend");
  }
  return out;
}

void add_simulate(Command& app) {
  auto const a = std::make_shared<SimulateArguments>();
  auto& command = app.add_command(
      "simulate",
      "Time per step of a run on many nodes, by events: strong and weak scaling up to 10^5 ranks, "
      "with what ends it, stragglers, and the duration with saves and failures");
  add_options(command, *a);
  command.run([a] { simulate(*a); });
}

}  // namespace tessera::cli
