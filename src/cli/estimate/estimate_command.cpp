#include "commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "estimate/deepspeed_estimate.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/config/node_groups.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/train/setup/adapter.hpp"
#include "tessera/train/setup/engine_config.hpp"
#include "tessera/train/setup/memory_plan.hpp"
#include "tessera/train/setup/model_source.hpp"

namespace tessera::cli {
namespace {

struct EstimateArguments {
  EstimatedHardware hardware;
  EstimatedModel totals;
  bool all_cold = false, json = false;
  std::string memory;
  std::vector<std::string> words;

  int ranks() const { return hardware.nodes * hardware.gpus_per_node; }
};

/// One way of running.
struct Candidate {
  int stage = 0;
  Recompute recompute = Recompute::none;
  train::MemoryPlan plan;

  /// Whether it fits into the memory of the device, or of the host where the model computes there.
  bool fits(std::int64_t limit) const {
    return static_cast<std::int64_t>(plan.total() - plan.in_host()) <= limit;
  }
};

/// Lists the ways of running from the fastest to the slowest: low stages first. Stage 3, which also
/// sends weights, comes after recomputation at stages 0 to 2.
std::vector<Candidate> candidates(zero::EngineConfig const& config) {
  std::vector<Candidate> out;
  constexpr Recompute all[] = {Recompute::none, Recompute::light, Recompute::block};
  for (auto const recompute : all)
    for (int const stage : {0, 1, 2}) out.push_back({stage, recompute, {}});
  for (auto const recompute : all) out.push_back({3, recompute, {}});
  // runs that the engine refuses at stage 0
  auto const& states = zero::settings<zero::ShardedStates>(config);
  if (states.master_dtype != Dtype::fp32 || states.optimizer_swap)
    std::erase_if(out, [](Candidate const& c) { return c.stage == 0; });
  return out;
}

/// Stages 1 to 3 are those of DeepSpeed and FSDP, under which --bf16 and --fp16 cast the model.
config::ResolvedConfig with_sharding(config::ResolvedConfig config) {
  if (!config.has_deepspeed) config.dtype = config.product_dtype;
  return config;
}

std::string size_text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

ConfigTree json_of(Candidate const& c, std::optional<std::int64_t> limit) {
  auto const bytes = [](std::size_t n) { return ConfigTree(static_cast<std::int64_t>(n)); };
  auto const& s = c.plan.states;
  ConfigTree::Object out{{"stage", c.stage},
                         {"recompute", name_of(c.recompute)},
                         {"gradient_checkpointing", c.recompute == Recompute::block},
                         {"weights", bytes(s.weights)},
                         {"gradients", bytes(s.gradients)},
                         {"master_weights", bytes(s.master_weights)},
                         {"optimizer_state", bytes(s.optimizer_state)},
                         {"buffers", bytes(s.buffers)},
                         {"attention_workspace", bytes(c.plan.attention_workspace)},
                         {"activations", bytes(c.plan.activations)},
                         {"host_checkpoints", bytes(c.plan.host_checkpoints)},
                         {"memory_saves", bytes(c.plan.memory_saves)},
                         {"total", bytes(c.plan.total())},
                         {"host", bytes(c.plan.in_host())},
                         {"nvme", bytes(s.swapped)}};
  if (limit) out.emplace_back("fits", c.fits(*limit));
  return ConfigTree(std::move(out));
}

/// "  fits", or empty without a limit.
std::string fits_text(bool fits, bool is_first, bool has_limit) {
  if (!has_limit) return "";
  return !fits ? "  too large" : is_first ? "  fits, try first" : "  fits";
}

void print_plans(std::vector<Candidate> const& plans, std::optional<std::int64_t> limit) {
  bool const swaps = std::any_of(plans.begin(), plans.end(),
                                 [](Candidate const&c) { return c.plan.states.swapped > 0; }),
             offloads = std::any_of(plans.begin(), plans.end(),
                                    [](Candidate const&c) { return c.plan.in_host() > 0; });
  fmt::print("stage  recompute  {:>10} {:>10} {:>10} {:>10} {:>10} {:>11} {:>10}{}{}\n", "weights",
             "gradients", "masters", "optimizer", "buffers", "activations", "total",
             offloads ? fmt::format(" {:>10}", "of it host") : "",
             swaps ? fmt::format(" {:>10}", "on NVMe") : "");
  bool none_fits = true;
  for (auto const& c : plans) {
    auto const& s = c.plan.states;
    bool const fits = limit && c.fits(*limit);
    fmt::print("{:>5}  {:>9}  {:>10} {:>10} {:>10} {:>10} {:>10} {:>11} {:>10}{}{}{}\n", c.stage,
               name_of(c.recompute), size_text(s.weights), size_text(s.gradients),
               size_text(s.master_weights), size_text(s.optimizer_state),
               size_text(s.buffers + c.plan.attention_workspace), size_text(c.plan.activations),
               size_text(c.plan.total()),
               offloads ? fmt::format(" {:>10}", size_text(c.plan.in_host())) : "",
               swaps ? fmt::format(" {:>10}", size_text(s.swapped)) : "",
               fits_text(fits, none_fits, limit.has_value()));
    none_fits = none_fits && !fits;
  }
  if (limit && none_fits)
    fmt::print(
        "Nothing fits into {} per rank: use more ranks, a smaller "
        "--per_device_train_batch_size or a shorter --block_size.\n",
        human_bytes(*limit));
}

void print_deepspeed(EstimatedModel const& model, EstimatedHardware const& on) {
  fmt::print("DeepSpeed's estimate for ZeRO stage 2:\n{}\n", zero2_table(model, on));
  fmt::print("DeepSpeed's estimate for ZeRO stage 3:\n{}", zero3_table(model, on));
}

void estimate_model(EstimateArguments const& a) {
  auto const arguments = config::parse_options(a.words);
  auto const model_config = train::model_config(arguments);
  auto config = config::resolve(arguments, a.ranks(),
                                std::max<std::int64_t>(model::hidden_size(model_config), 1));
  config::place_on_nodes(config, a.hardware.gpus_per_node);
  auto const options = [&](config::ResolvedConfig const& of) {
    auto out = train::model_options(of);
    out.lora = train::lora_options(arguments, model_config);
    out.frozen_parameters = arguments.frozen_parameters;
    return out;
  };
  auto const model = model::make_model(model_config, options(config));
  auto const sharded_config = with_sharding(config);
  auto const sharded = model::make_model(model_config, options(sharded_config));
  auto run = train::planned_run(
      arguments, config, options(config).lora,
      arguments.use_cpu ? memory::MemorySpace::host : memory::MemorySpace::device,
      a.hardware.nodes);
  run.sequence = train::planned_sequence(arguments, *model);
  std::optional<std::int64_t> limit;
  if (!a.memory.empty()) limit = parse_size(a.memory);
  auto plans = candidates(run.engine);
  for (auto& c : plans) {
    auto resolved = c.stage == 0 ? config : sharded_config;
    resolved.stage = c.stage;
    config::check_together(resolved);
    auto const lora = options(resolved).lora;
    run.engine = train::engine_config(resolved, lora);
    run.reference = train::reference_weights(arguments, resolved, lora);
    run.recompute = c.recompute;
    c.plan = train::plan_memory(c.stage == 0 ? *model : *sharded, run);
  }
  auto const totals = totals_of(*model);
  if (a.json) {
    ConfigTree::Array list;
    for (auto const& c : plans) list.push_back(json_of(c, limit));
    fmt::print("{}\n", ConfigTree(ConfigTree::Object{{"parameters", totals.parameters},
                                                     {"largest_layer", totals.largest_layer},
                                                     {"ranks", a.ranks()},
                                                     {"rows", run.rows},
                                                     {"sequence", run.sequence},
                                                     {"plans", std::move(list)}})
                           .dump(2));
    return;
  }
  print_deepspeed(totals, a.hardware);
  fmt::print("\nTessera, each of {}, {} weights, {}, micro-batches of {} x {} tokens:\n",
             counted(a.ranks(), "rank"), name_of(sharded_config.dtype), config.optimizer.algorithm,
             run.rows, run.sequence);
  print_plans(plans, limit);
  if (run.space == memory::MemorySpace::device)
    fmt::print("The device's context, NCCL and the matrix libraries need about a gigabyte more.\n");
}

void estimate(EstimateArguments const& a) {
  if (!a.all_cold) return estimate_model(a);
  TESSERA_VALIDATE(a.totals.parameters > 0 && a.totals.largest_layer > 0, UsageError,
                   "--all_cold needs --total_params and --largest_layer_params");
  TESSERA_VALIDATE(a.words.empty(), UsageError, "--all_cold knows no model; leave out ",
                   a.words[0]);
  print_deepspeed(a.totals, a.hardware);
}

}  // namespace

void add_estimate(Command& app) {
  auto const a = std::make_shared<EstimateArguments>();
  auto& command = app.add_command(
      "estimate",
      "Memory per rank of every ZeRO stage before a run: DeepSpeed's estimates, and the bytes that "
      "tessera-train allocates");
  command.add("--num_nodes", a->hardware.nodes, "nodes of the run").at_least(1);
  command.add("--num_gpus_per_node", a->hardware.gpus_per_node, "ranks per node").at_least(1);
  command
      .add("--additional_buffer_factor", a->hardware.buffer_factor,
           "factor of host memory in DeepSpeed's estimates")
      .at_least(0);
  command.add("--memory SIZE", a->memory,
              "memory of a rank's device, for example 80GiB, or of a rank with --use_cpu: "
              "says what fits and what to try first");
  command.add("--all_cold", a->all_cold,
              "DeepSpeed's estimates only, from --total_params and --largest_layer_params");
  command.add("--total_params", a->totals.parameters, "parameters of the model").at_least(1);
  command.add("--largest_layer_params", a->totals.largest_layer, "parameters of its largest layer")
      .at_least(1);
  command.add("--json", a->json, "Tessera's bytes as JSON");
  command.add_rest("options", a->words, "options of tessera-train that name the model and the run",
                   Command::Rest::training);
  command.run([a] { estimate(*a); });
}

}  // namespace tessera::cli
