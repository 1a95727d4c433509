#include "tessera/plan/planner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/config/node_groups.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/planning.hpp"
#include "tessera/plan/shard_groups.hpp"
#include "tessera/train/setup/adapter.hpp"
#include "tessera/train/setup/engine_config.hpp"
#include "tessera/train/setup/model_source.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"

namespace tessera::plan {
namespace {

std::int64_t hidden_size(ConfigTree const& model_config) {
  return std::max<std::int64_t>(model::hidden_size(model_config), 1);
}

std::int64_t bytes(std::size_t count) { return static_cast<std::int64_t>(count); }

WireBytes wire_of_second(train::PlannedSteps const& steps, PlanRequest const& request) {
  WireBytes sum;
  auto const* const machine = request.machine ? &*request.machine : nullptr;
  for (std::size_t i = steps.first_of_second; i < steps.work.size(); ++i) {
    auto const& work = steps.work[i];
    if (work.kind != memory::PlannedWork::Kind::collective) continue;
    auto const sent = wire_bytes(static_cast<double>(work.sent),
                                 Collective{work.name, static_cast<double>(work.bytes)},
                                 cluster_of(request.cluster, work.group, work.ranks), machine);
    sum.intra_node += sent.intra_node;
    sum.inter_node += sent.inter_node;
  }
  return sum;
}

/// Extrapolates values of 2 and 3 micro-steps to those of @p micro_steps: all but the first and the
/// last do the same work.
double extrapolated(double two, double three, std::int64_t micro_steps) {
  return two + static_cast<double>(micro_steps - 2) * (three - two);
}

WireBytes extrapolated(WireBytes const& two, WireBytes const& three, std::int64_t micro_steps) {
  return {extrapolated(two.intra_node, three.intra_node, micro_steps),
          extrapolated(two.inter_node, three.inter_node, micro_steps)};
}

StepTime extrapolated(StepTime const& two, StepTime const& three, std::int64_t micro_steps) {
  return {extrapolated(two.seconds, three.seconds, micro_steps),
          extrapolated(two.compute, three.compute, micro_steps),
          extrapolated(two.update, three.update, micro_steps),
          extrapolated(two.communication, three.communication, micro_steps),
          extrapolated(two.transfers, three.transfers, micro_steps),
          extrapolated(two.collectives, three.collectives, micro_steps)};
}

/// --collectives, for operands in host memory.
comm::Levels levels_of(config::TrainingArguments const& a) {
  if (a.collectives == "two-level" || config::wants_two_levels(a)) return comm::Levels::two;
  return a.collectives == "flat" ? comm::Levels::flat : comm::Levels::automatic;
}

bool fits(std::int64_t need, std::int64_t limit) { return limit == 0 || need <= limit; }

}  // namespace

Planner::Planner(PlanRequest request) : request_(std::move(request)) {
  auto const& a = request_.arguments;
  if (!computes_on_device()) request_.cluster.host_levels = levels_of(a);
  model_config_ = train::model_config(a);
  given_ = config::resolve(a, request_.cluster.ranks(), hidden_size(model_config_));
  config::place_on_nodes(given_, request_.cluster.ranks_per_node);
  auto const& model = model_for(given_);
  for (auto const& unit : model.units())
    for (auto const& parameter : unit.parameters) parameters_ += parameter.numel();
  sequence_ = train::planned_sequence(a, model);
}

model::CausalLm& Planner::model_for(config::ResolvedConfig const& config) {
  auto& model = models_[{config.dtype, config.product_dtype}];
  if (!model) model = make_model(config);
  return *model;
}

std::unique_ptr<model::CausalLm> Planner::make_model(config::ResolvedConfig const& config) const {
  auto options = train::model_options(config);
  options.lora = adapters();
  options.frozen_parameters = request_.arguments.frozen_parameters;
  return model::make_model(model_config_, options);
}

double Planner::tokens_per_step() const {
  return static_cast<double>(given_.train_batch_size) * static_cast<double>(sequence_);
}

double Planner::steps() const {
  if (request_.train_tokens > 0.0) return std::ceil(request_.train_tokens / tokens_per_step());
  return request_.arguments.max_steps > 0 ? static_cast<double>(request_.arguments.max_steps) : 0.0;
}

double Planner::checkpoint_bytes() const {
  zero::PartitionPlan const plan(zero::trained_parameters(model().units()).units, 1,
                                 zero::alignment_for(given_.optimizer));
  double values = static_cast<double>(plan.parameter_count());
  for (auto const& state : given_.optimizer.states)
    values += static_cast<double>(state.extent == optim::Extent::elementwise
                                      ? plan.parameter_count()
                                      : plan.of_extent(state.extent).parameter_count());
  if (given_.error_feedback && request_.cluster.ranks() > request_.cluster.ranks_per_node)
    values += static_cast<double>(plan.parameter_count());  // the errors
  return values * sizeof(float);
}

config::ResolvedConfig Planner::resolved(Choice const& choice) const {
  auto out = config::resolve(arguments_of(request_.arguments, choice), request_.cluster.ranks(),
                             hidden_size(model_config_));
  config::place_on_nodes(out, request_.cluster.ranks_per_node);
  return out;
}

std::vector<Choice> Planner::open() const {
  return open_choices(request_.arguments, given_,
                      {computes_on_device(), request_.limits.nvme > 0 || given_.offload.uses_nvme(),
                       request_.splits_given_batch, shard_group_sizes(request_.cluster)});
}

PlannedChoice const& Planner::evaluate(Choice const& choice) {
  auto const found = std::find_if(known_.begin(), known_.end(),
                                  [&](PlannedChoice const& p) { return p.choice == choice; });
  if (found != known_.end()) return *found;
  return known_.emplace_back(plan(choice, PlannedParts::all));
}

PlannedChoice Planner::plan(Choice const& choice, PlannedParts parts) {
  PlannedChoice out;
  out.choice = choice;
  try {
    auto const config = resolved(choice);
    auto& model = model_for(config);
    if (parts == PlannedParts::all)
      add_times(out, model, run_of(config, choice));
    else
      out.memory = train::plan_memory(model, run_of(config, choice));
    add_memory(out, model);
  } catch (ConfigError const& e) {
    out = {};
    out.choice = choice;
    out.refused = e.what();
  }
  return out;
}

/// All of a choice that fits, else its memory: most choices of a large model do not fit.
PlannedChoice Planner::if_it_fits(Choice const& choice) {
  auto const& limits = request_.limits;
  if (limits.device + limits.host + limits.nvme == 0) return evaluate(choice);
  auto memory = plan(choice, PlannedParts::memory);
  return memory.fits ? evaluate(choice) : memory;
}

std::optional<model::LoraOptions> Planner::adapters() const {
  return train::lora_options(request_.arguments, model_config_);
}

train::PlannedRun Planner::run_of(config::ResolvedConfig const& config,
                                  Choice const& choice) const {
  auto run = train::planned_run(
      request_.arguments, config, adapters(),
      computes_on_device() ? memory::MemorySpace::device : memory::MemorySpace::host,
      request_.cluster.nodes);
  run.sequence = sequence_;
  run.recompute = choice.recompute;
  return run;
}

void Planner::add_times(PlannedChoice& out, model::CausalLm& model, train::PlannedRun const& run) {
  auto const& cluster = request_.cluster;
  auto const steps = train::plan_steps(
      model, run, static_cast<int>(std::min<std::int64_t>(out.choice.accumulation, 2)));
  out.memory = steps.memory;
  out.wire = wire_of_second(steps, request_);
  if (request_.machine) out.time = step_time(steps, cluster, *request_.machine);
  if (out.choice.accumulation > 2) {
    auto const three = train::plan_steps(model, run, 3);
    auto const micro_steps = out.choice.accumulation;
    out.wire = extrapolated(out.wire, wire_of_second(three, request_), micro_steps);
    if (out.time)
      out.time = extrapolated(*out.time, step_time(three, cluster, *request_.machine), micro_steps);
  }
  if (out.time) out.tokens_per_second = tokens_per_step() / out.time->seconds;
}

std::vector<StepTime> Planner::step_times(Choice const& choice,
                                          std::vector<Timing> const& timings) {
  auto const config = resolved(choice);
  auto const run = run_of(config, choice);
  auto& model = model_for(config);
  auto const times_of = [&](int micro_steps) {
    auto const steps = train::plan_steps(model, run, micro_steps);
    std::vector<StepTime> out;
    for (auto const& [machine, classes] : timings)
      out.push_back(step_time(steps, request_.cluster, machine, classes));
    return out;
  };
  auto out = times_of(static_cast<int>(std::min<std::int64_t>(choice.accumulation, 2)));
  if (choice.accumulation <= 2) return out;
  auto const three = times_of(3);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = extrapolated(out[i], three[i], choice.accumulation);
  return out;
}

void Planner::add_memory(PlannedChoice& out, model::CausalLm& model) const {
  auto const& limits = request_.limits;
  auto& memory = out.memory;
  auto& compute = computes_on_device() ? memory.device : memory.host;
  if (request_.arguments.do_eval) {
    auto const evaluation = model.activation_bytes(
        {.kind = memory::Pass::evaluation,
         .rows = request_.arguments.per_device_eval_batch_size,
         .sequence = sequence_},
        computes_on_device() ? memory::MemorySpace::device : memory::MemorySpace::host);
    memory.activations = std::max(memory.activations, evaluation);
    compute.bytes[memory::Purpose::activations] = memory::arena_bytes(memory.activations);
  }
  out.device_bytes =
      computes_on_device() ? bytes(memory.device.total()) + limits.device_reserved : 0;
  out.host_bytes = bytes(memory.host.total() + memory.saving) + limits.host_reserved;
  out.nvme_bytes = bytes(memory.states.swapped);
  out.fits = fits(out.device_bytes, limits.device) && fits(out.host_bytes, limits.host) &&
             fits(out.nvme_bytes, limits.nvme);
}

std::vector<PlannedChoice> Planner::compare() {
  std::vector<PlannedChoice> out;
  auto choices = open();
  std::reverse(choices.begin(), choices.end());
  std::map<std::int64_t, bool> may_fit;  // groups by their choice with the least memory, the first
  for (auto const& choice : choices) {
    bool const is_group = choice.shard_group > 0;
    auto const known = may_fit.find(choice.shard_group);
    if (is_group && known != may_fit.end() && !known->second) continue;
    auto const planned = if_it_fits(choice);
    auto same = planned.choice;
    if (is_group) may_fit.try_emplace(same.shard_group, planned.refused.empty() && planned.fits);
    if (is_group && !may_fit.at(same.shard_group)) continue;
    auto const rival = std::find_if(out.begin(), out.end(), [&](PlannedChoice const& other) {
      same.micro_batch = other.choice.micro_batch;
      same.accumulation = other.choice.accumulation;
      if (is_group && other.choice.shard_group > 0) same.shard_group = other.choice.shard_group;
      return same == other.choice;
    });
    if (rival == out.end())
      out.push_back(planned);
    else if (planned.fits && (!rival->fits || is_better(planned, *rival)))
      *rival = planned;
    else if (!planned.fits && !rival->fits && planned.device_bytes < rival->device_bytes)
      *rival = planned;
  }
  for (auto& row : out) row = evaluate(row.choice);
  std::stable_sort(out.begin(), out.end(), [](auto const& a, auto const& b) {
    return is_faster_by_the_guides(a.choice, b.choice);
  });
  return out;
}

std::string limits_text(Limits const& limits) {
  std::vector<std::string> out;
  for (auto const& [bytes, what] : {std::pair(limits.device, "device memory"),
                                    std::pair(limits.host, "host memory"),
                                    {limits.nvme, "NVMe"}})
    if (bytes > 0) out.push_back(concat(human_bytes(bytes), " of ", what));
  return join(out, " and ");
}

std::string need_text(PlannedChoice const& planned, Limits const& limits) {
  auto const excess = [](std::int64_t need, std::int64_t limit) {
    return fits(need, limit) ? 0 : need;
  };
  return limits_text({.device = excess(planned.device_bytes, limits.device),
                      .host = excess(planned.host_bytes, limits.host),
                      .nvme = excess(planned.nvme_bytes, limits.nvme)});
}

bool is_better(PlannedChoice const& a, PlannedChoice const& b) {
  constexpr double clear = 1.01;
  if (a.time && b.time) {
    if (a.time->seconds * clear < b.time->seconds) return true;
    if (b.time->seconds * clear < a.time->seconds) return false;
  }
  return is_faster_by_the_guides(a.choice, b.choice);
}

PlannedChoice const* recommended(std::vector<PlannedChoice> const& choices) {
  PlannedChoice const* best = nullptr;
  for (auto const& choice : choices)
    if (choice.refused.empty() && choice.fits && (!best || is_better(choice, *best)))
      best = &choice;
  return best;
}

}  // namespace tessera::plan
