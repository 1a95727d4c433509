#include "commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "estimate/deepspeed_estimate.hpp"
#include "installation.hpp"
#include "launch/run_program.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"
#include "tessera/plan/ladder.hpp"
#include "tessera/plan/plan_report.hpp"
#include "tessera/plan/planner.hpp"

namespace tessera::cli {
namespace {

struct PlanArguments {
  int nodes = 1;
  std::optional<int> gpus;
  std::string device_memory, host_memory, nvme, machine, json, plot, deepspeed;
  double train_tokens = 0.0;
  std::vector<std::string> words;
};

std::int64_t size_of_option(char const* option, std::string const& text, std::int64_t otherwise) {
  if (text.empty()) return otherwise;
  try {
    return parse_size(text);
  } catch (UsageError const& e) {
    throw UsageError(concat(option, ": ", e.what()));
  }
}

plan::PlanRequest request_of(PlanArguments const& a) {
  plan::PlanRequest out;
  out.arguments = config::parse_options(a.words);
  if (!a.machine.empty()) out.machine = find_machine(a.machine);
  auto const& m = out.machine;
  if (m && !m->has_device) out.arguments.use_cpu = true;
  out.cluster = {a.nodes, a.gpus.value_or(m ? m->ranks_per_node : 1)};
  auto const given = config::memory_bounds(out.arguments);
  auto const either = [](std::int64_t first, std::int64_t second) {
    return first > 0 ? first : second;
  };
  auto& l = out.limits = limits_of(m ? &*m : nullptr);
  l.device = size_of_option("--device_memory", a.device_memory, either(given.device, l.device));
  l.host = size_of_option("--host_memory", a.host_memory, either(given.host, l.host));
  l.nvme = size_of_option("--nvme", a.nvme, l.nvme);
  out.train_tokens = a.train_tokens;
  return out;
}

std::string srun_line(PlanArguments const& a, plan::Planner const& planner,
                      plan::Choice const& choice) {
  auto const& cluster = planner.request().cluster;
  std::vector<std::string> line{"srun", fmt::format("--nodes={}", cluster.nodes),
                                fmt::format("--ntasks-per-node={}", cluster.ranks_per_node)};
  if (planner.computes_on_device())
    line.push_back(fmt::format("--gpus-per-node={}", cluster.ranks_per_node));
  line.emplace_back("tessera-train");
  auto const words = plan::training_words(a.words, planner.request().arguments, choice,
                                          a.deepspeed.empty() ? "ds_plan.json" : a.deepspeed);
  line.insert(line.end(), words.begin(), words.end());
  return shell_line(line);
}

void report_nothing_fits(plan::Planner& planner, std::vector<plan::PlannedChoice> const& choices) {
  bool const refuses_all =
      std::all_of(choices.begin(), choices.end(), [](auto const& p) { return !p.refused.empty(); });
  if (refuses_all) throw ConfigError(choices.at(0).refused);
  auto const changes = plan::changes_that_fit(planner);
  throw ConfigError(concat("nothing fits into ", plan::limits_text(planner.request().limits),
                           " per rank on ", counted(planner.request().cluster.ranks(), "rank"),
                           ", not even the choice with the least memory; ",
                           changes.empty() ? std::string("use a smaller model or more nodes")
                                           : concat("the smallest changes that would fit, one of: ",
                                                    join(changes, "; "))));
}

void run_plan(PlanArguments const& a) {
  plan::Planner planner(request_of(a));
  auto const choices = planner.compare();
  auto const rungs = plan::ladder(planner);
  auto const* const best = plan::recommended(choices);
  if (!a.json.empty())
    write_file_atomically(a.json, plan::to_json(planner, choices, rungs, best).dump(2) + "\n");
  if (!a.plot.empty()) write_file_atomically(a.plot, plan::draw_plan(planner, choices));
  auto const& cluster = planner.request().cluster;
  fmt::print("{}DeepSpeed's estimator, model states per GPU: {}\n\n{}\n",
             plan::table_text(planner, choices),
             device_estimates_text(totals_of(planner.model()),
                                   {cluster.nodes, cluster.ranks_per_node, 1.5}),
             plan::ladder_text(planner, rungs));
  if (!best) report_nothing_fits(planner, choices);
  fmt::print("{}\n", plan::recommendation_text(planner, choices, *best));
  auto const arguments = plan::arguments_of(planner.request().arguments, best->choice);
  if (arguments.deepspeed.is_given()) {
    auto const text = arguments.deepspeed.document.dump(2) + "\n";
    if (a.deepspeed.empty())
      fmt::print("ds_plan.json:\n{}\n", text);
    else
      write_file_atomically(a.deepspeed, text);
  }
  fmt::print("{}\n", srun_line(a, planner, best->choice));
}

void add_options(Command& app, PlanArguments& a) {
  app.add("--nodes,--num_nodes", a.nodes, "nodes of the run").between(1, 1'000'000);
  app.add("--gpus_per_node,--num_gpus_per_node", a.gpus,
          "ranks per node (default: those of the machine profile, or 1)")
      .between(1, 1024);
  app.add("--device_memory SIZE", a.device_memory,
          "memory of a rank's device, for example 80GiB (default: of the machine profile)");
  app.add("--host_memory SIZE", a.host_memory,
          "host memory of a rank (default: of the machine profile)");
  app.add("--nvme SIZE", a.nvme,
          "bytes of a rank on local drives; with it offload to NVMe is planned too");
  app.add("--machine MACHINE", a.machine,
          "machine profile: a file of tessera selftest --profile, or the name of a shipped "
          "example such as h200; with it times are planned");
  app.add("--train_tokens", a.train_tokens,
          "tokens of the training, for its duration (default: from --max_steps)")
      .at_least(1);
  app.add("--json FILE", a.json, "JSON file to write: all choices, the ladder, the recommended");
  app.add("--plot FILE", a.plot, "SVG file to write: memory and step time of each choice");
  app.add("--write_deepspeed FILE", a.deepspeed,
          "file for the DeepSpeed configuration (default: print it)");
  app.add_rest("options", a.words, "options of tessera-train that name the model and the run",
               Command::Rest::training);
}

}  // namespace

void add_plan(Command& app) {
  auto const a = std::make_shared<PlanArguments>();
  auto& command = app.add_command(
      "plan",
      "Memory, communication and time per step of every ZeRO stage, offload, recomputation and "
      "micro-batch that the options leave open; the choice to use, and the ladder");
  add_options(command, *a);
  command.run([a] { run_plan(*a); });
}

}  // namespace tessera::cli
