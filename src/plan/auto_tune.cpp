#include "tessera/plan/auto_tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "tessera/config/node_groups.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/plan/ladder.hpp"
#include "tessera/train/report/run_directory.hpp"
#include "tessera/train/setup/activation_memory.hpp"
#include "tessera/train/setup/engine_config.hpp"
#include "tessera/train/step/stop_request.hpp"

namespace tessera::plan {
namespace fs = std::filesystem;
namespace {

/// Options that name the search or what it decides.
constexpr char const* decided[] = {"auto_tune",
                                   "tune_minutes",
                                   "deepspeed",
                                   "accelerate_config",
                                   "per_device_train_batch_size",
                                   "gradient_accumulation_steps",
                                   "gradient_checkpointing",
                                   "recompute",
                                   "auto_find_batch_size"};

bool is_root(TuningJob const& job) { return job.comm.rank() == 0; }

config::TrainingArguments without_search(config::TrainingArguments arguments) {
  arguments.auto_tune = false;
  if (auto& deepspeed = arguments.deepspeed; deepspeed.is_given()) {
    auto document = deepspeed.document;
    document.erase("autotuning");
    deepspeed = {std::move(document), deepspeed.source};
  }
  return arguments;
}

/// What every rank can still allocate.
PlanRequest request_of(TuningJob const& job) {
  PlanRequest out;
  out.arguments = job.arguments;
  bool const on_device = memory::Runtime::device() >= 0;
  out.arguments.use_cpu = !on_device;
  out.cluster = job.cluster;
  out.splits_given_batch = true;
  auto const least = [&](std::size_t bytes) {
    return comm::all_reduce_value(job.comm, static_cast<std::int64_t>(bytes), comm::ReduceOp::min);
  };
  if (on_device) out.limits.device = least(memory::free_device_bytes());
  out.limits.host =
      least(memory::available_memory(static_cast<std::size_t>(job.cluster.ranks_per_node)).bytes);
  return out;
}

/// What decides the result of a search.
ConfigTree identity(TuningJob const& job, Planner const& planner) {
  return ConfigTree::object()
      .set("nodes", job.cluster.nodes)
      .set("ranks_per_node", job.cluster.ranks_per_node)
      .set("on_device", planner.computes_on_device())
      .set("parameters", planner.parameters())
      .set("sequence", planner.sequence())
      .set("config", config::describe(planner.given()));
}

ConfigTree json_of(Choice const& c) {
  auto out = ConfigTree::object()
                 .set("stage", c.stage)
                 .set("offload_optimizer", config::name_of(c.optimizer))
                 .set("offload_param", config::name_of(c.parameters))
                 .set("recompute", name_of(c.recompute))
                 .set("per_device_train_batch_size", c.micro_batch)
                 .set("gradient_accumulation_steps", c.accumulation);
  if (c.bucket_numel > 0) out.set("bucket_size", c.bucket_numel);
  if (c.shard_group > 0) out.set("mics_shard_size", c.shard_group);
  return out;
}

config::OffloadDevice offload_of(ConfigTree const& tree, char const* key) {
  auto const name = tree.at(key).as_string();
  return name == "cpu"    ? config::OffloadDevice::cpu
         : name == "nvme" ? config::OffloadDevice::nvme
                          : config::OffloadDevice::none;
}

Recompute recompute_of(ConfigTree const& tree) {
  auto const name = tree.at("recompute").as_string();
  return name == name_of(Recompute::block)   ? Recompute::block
         : name == name_of(Recompute::light) ? Recompute::light
                                             : Recompute::none;
}

Choice choice_of(ConfigTree const& tree) {
  return {static_cast<int>(tree.at("stage").as_int()),
          offload_of(tree, "offload_optimizer"),
          offload_of(tree, "offload_param"),
          recompute_of(tree),
          tree.at("per_device_train_batch_size").as_int(),
          tree.at("gradient_accumulation_steps").as_int(),
          tree.get_int("bucket_size", 0),
          tree.get_int("mics_shard_size", 0)};
}

Trial const* given_trial(Planner const& planner, TuningResult const& result) {
  auto const given = given_choice(planner.request().arguments, planner.given());
  auto const found = std::find_if(result.trials.begin(), result.trials.end(),
                                  [&](Trial const& t) { return t.choice == given && t.ran(); });
  return found == result.trials.end() ? nullptr : &*found;
}

[[noreturn]] void refuse(Planner& planner, TuningResult const& result) {
  if (!result.trials.empty())
    throw ConfigError(concat("--auto_tune: none of ", counted(result.trials.size(), "trial"),
                             " ran; the last one, ", text_of(result.trials.back().choice), ": ",
                             result.trials.back().refused));
  auto const changes = changes_that_fit(planner);
  throw ConfigError(concat("--auto_tune: by the plan no configuration fits into the memory of ",
                           counted(planner.request().cluster.ranks(), "rank"), "; ",
                           changes.empty() ? "use a smaller model or more nodes"
                                           : concat("the smallest changes that would fit, one of: ",
                                                    join(changes, "; "))));
}

enum class Earlier { ignore, take };
/// The choice of an earlier search of the same run, where it may be used; rank 0.
std::string earlier_result(TuningJob const& job, ConfigTree const& of, Earlier use) {
  fs::path const file = job.arguments.output_dir / "tuning.json";
  if (use == Earlier::ignore || !fs::exists(file)) return "";
  auto const found = ConfigTree::read(file);
  auto const* const best = found.find("best");
  auto const* const earlier = found.find("of");
  return best && earlier && earlier->dump() == of.dump() ? best->dump() : "";
}

void write_result(TuningJob const& job, Planner const& planner, ConfigTree const& of,
                  TuningResult const& result) {
  auto const& directory = job.arguments.output_dir;
  write_file_atomically(directory / "tuning.json",
                        to_json(planner, result).set("of", of).dump(2) + "\n");
  write_file_atomically(directory / "tuned.json",
                        tuned_run(job.arguments, result.best->choice).dump(2) + "\n");
}

TuningResult search(TuningJob const& job, Planner& planner, config::Tuning const& limits) {
  auto const start = Clock::now();
  TrialContext const context{job.comm,
                             job.cluster.ranks_per_node,
                             job.arguments.device_graphs,
                             limits.warm_up_steps,
                             limits.measured_steps,
                             limits.measured_seconds};
  auto const time_left = [&] {
    bool const stops = train::StopRequest::signal() != 0;
    double const left = stops ? 0.0 : 60.0 * limits.minutes - seconds_since(start);
    return comm::all_reduce_value(job.comm, left, comm::ReduceOp::min);
  };
  auto const measure = [&](Choice const& choice, double useful_seconds) {
    auto trial = run_trial(planner, choice, context, useful_seconds);
    if (is_root(job))
      log::info(fmt::format(
          "auto_tune: {}: {}", text_of(choice),
          trial.ran() ? fmt::format("{:.4g} s per step", trial.seconds) : trial.refused));
    return trial;
  };
  return Tuner(planner, limits, {measure, time_left}).run();
}

}  // namespace

Tuned auto_tune(TuningJob const& job) {
  Planner planner(request_of(job));
  auto const limits = config::tuning_of(job.arguments).value_or(config::Tuning{});
  auto const of = identity(job, planner);
  std::unique_ptr<train::RunLock> lock;
  auto const start = train::prepare_run_directory(job.arguments, job.comm, lock);
  auto const use = limits.overwrite && start.checkpoint.empty() ? Earlier::ignore : Earlier::take;
  auto const earlier =
      comm::broadcast_from_root(job.comm, [&] { return earlier_result(job, of, use); });
  Tuned out{without_search(job.arguments), true};
  if (!earlier.empty()) {
    auto const choice = choice_of(ConfigTree::parse(earlier, "tuning.json"));
    out.arguments = arguments_of(std::move(out.arguments), choice);
    if (is_root(job))
      log::info(concat("auto_tune: ", (job.arguments.output_dir / "tuning.json").string(), " has ",
                       text_of(choice), " for this run"));
    return out;
  }
  auto const result = search(job, planner, limits);
  out.stopped = !comm::agree(job.comm, train::StopRequest::signal() == 0);
  if (out.stopped) return out;
  if (!result.best) refuse(planner, result);
  comm::run_on_ranks(job.comm, is_root(job), [&] { write_result(job, planner, of, result); });
  if (is_root(job)) log::info(tuning_text(planner, result));
  out.arguments = arguments_of(std::move(out.arguments), result.best->choice);
  return out;
}

std::string tuning_text(Planner const& planner, TuningResult const& result) {
  std::string out = fmt::format(
      "auto_tune: measured {} of {} configurations in {}; {} fit by the plan; it ended "
      "with {}\n",
      result.trials.size(), result.open, human_duration(result.seconds), result.admitted,
      result.ended_by);
  auto shown = result.trials;
  std::erase_if(shown, [](Trial const& t) { return !t.ran(); });
  std::sort(shown.begin(), shown.end(),
            [](Trial const& a, Trial const& b) { return a.seconds < b.seconds; });
  constexpr std::size_t lines = 8;
  for (std::size_t i = 0; i < std::min(lines, shown.size()); ++i)
    out += fmt::format("  {:>10.4g} s per step  {}\n", shown[i].seconds, text_of(shown[i].choice));
  auto const& best = *result.best;
  out += fmt::format("fastest: {}: {:.4g} s per step, {:.4g} tokens/s", text_of(best.choice),
                     best.seconds, planner.tokens_per_step() / best.seconds);
  if (auto const* const given = given_trial(planner, result); given && given->choice != best.choice)
    out += fmt::format("; {:.3g} times as fast as the given one, {} ({:.4g} s)",
                       given->seconds / best.seconds, text_of(given->choice), given->seconds);
  return out;
}

ConfigTree to_json(Planner const& planner, TuningResult const& result) {
  ConfigTree::Array trials;
  for (auto const& t : result.trials) {
    auto entry = json_of(t.choice);
    if (t.ran())
      entry.set("seconds", t.seconds)
          .set("tokens_per_second", planner.tokens_per_step() / t.seconds);
    else
      entry.set("refused", t.refused);
    trials.push_back(std::move(entry));
  }
  auto out = ConfigTree::object()
                 .set("open", static_cast<std::int64_t>(result.open))
                 .set("admitted", static_cast<std::int64_t>(result.admitted))
                 .set("ended_by", result.ended_by)
                 .set("seconds", result.seconds)
                 .set("trials", std::move(trials));
  if (result.best)
    out.set("best", json_of(result.best->choice).set("seconds", result.best->seconds));
  return out;
}

ConfigTree tuned_run(config::TrainingArguments const& arguments, Choice const& choice) {
  auto out = ConfigTree::object();
  for (auto const& [name, entry] : arguments.values.entries)
    if (std::find(std::begin(decided), std::end(decided), name) == std::end(decided))
      out.set(name, entry.value);
  auto const tuned = arguments_of(without_search(arguments), choice);
  if (tuned.deepspeed.is_given()) out.set("deepspeed", tuned.deepspeed.document);
  out.set("per_device_train_batch_size", choice.micro_batch)
      .set("gradient_accumulation_steps", choice.accumulation)
      .set("recompute", name_of(choice.recompute));
  return out;
}

namespace {

std::unique_ptr<memory::Queue> compute_queue(TrialContext const& where) {
  if (memory::Runtime::device() < 0) return memory::make_inline_queue("compute");
  return memory::make_stream_queue(
      "compute", memory::StreamPriority::normal,
      where.device_graphs ? memory::GraphMode::capture : memory::GraphMode::off);
}

/// Model, engine and tokens of a choice.
class Candidate {
 public:
  Candidate(Planner& planner, Choice const& choice, TrialContext const& where)
      : comm_(where.comm),
        choice_(choice),
        config_(planner.resolved(choice)),
        mesh_(comm_, config::mesh_of(config_)),
        compute_(compute_queue(where)),
        model_(planner.make_model(config_)),
        tokens_(static_cast<std::size_t>(choice.micro_batch * planner.sequence())),
        sequence_(planner.sequence()) {
    auto engine = train::engine_config(config_, planner.adapters(), train::unit_messages());
    // a scale that overflows would skip the updates
    if (config_.dynamic_loss_scale) engine.loss_scaler = {.static_scale = 128.0};
    engine_ = zero::make_engine(engine, model_->units(), mesh_, *compute_);
    train::PlannedPasses passes;
    passes.train_rows = choice.micro_batch;
    passes.train_sequence = sequence_;
    passes.recompute = choice.recompute;
    passes.cpu_checkpointing = config_.cpu_checkpointing;
    passes.ranks_on_node = where.ranks_on_node;
    if (auto const& a = planner.request().arguments; a.do_eval) {
      passes.evaluation_rows = a.per_device_eval_batch_size;
      passes.evaluation_sequence = sequence_;
    }
    (void)train::reserve_activations(*model_, *compute_, comm_, passes);
    engine_->initialize(
        [](memory::UnitIndex, int, std::int64_t first, std::int64_t numel, float* to) {
          for (std::int64_t i = 0; i < numel; ++i)
            to[i] = 0.02f * std::sin(static_cast<float>(first + i));
        });
    std::int64_t const vocabulary = std::max<std::int64_t>(model_->vocabulary_size(), 2);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i * 31) % vocabulary);
  }

  /// Seconds on the slowest rank.
  double step(std::uint64_t number) {
    auto const start = Clock::now();
    model::PassSettings settings;
    settings.step = number;
    settings.gradient_scale = static_cast<float>(
        engine_->gradient_scale() /
        static_cast<double>(config_.train_batch_size * std::max<std::int64_t>(sequence_ - 1, 1)));
    settings.recompute = choice_.recompute;
    settings.cpu_checkpointing = config_.cpu_checkpointing;
    engine_->begin_step();
    std::vector<model::LossSum> losses;
    int const micro_steps = static_cast<int>(choice_.accumulation);
    for (int i = 0; i < micro_steps; ++i) {
      engine_->begin_micro_step(i, micro_steps);
      losses.push_back(model_->train({tokens_.data(), choice_.micro_batch, sequence_, 0}, settings,
                                     *engine_, *compute_));
    }
    (void)engine_->finish_step(1e-6);
    for (auto const& loss : losses) (void)loss.value();
    return comm::all_reduce_value(comm_, seconds_since(start), comm::ReduceOp::max);
  }

 private:
  comm::Collectives& comm_;
  Choice choice_;
  config::ResolvedConfig config_;
  comm::Mesh mesh_;
  std::unique_ptr<memory::Queue> compute_;
  std::unique_ptr<model::CausalLm> model_;
  std::unique_ptr<zero::Engine> engine_;
  std::vector<std::int32_t> tokens_;
  std::int64_t sequence_ = 0;
};

/// @param step, fastest  the last one from 0, the shortest so far
bool is_hopeless(std::int64_t step, double fastest, double useful_seconds) {
  // the first step pays for first use of memory and kernels
  constexpr double first_use = 1.0;
  return fastest > (step == 0 ? 2.0 * useful_seconds + first_use : useful_seconds);
}

bool is_asked_to_stop(comm::Collectives& comm) {
  return !comm::agree(comm, train::StopRequest::signal() == 0);
}

}  // namespace

Trial run_trial(Planner& planner, Choice const& choice, TrialContext const& where,
                double useful_seconds) {
  Trial out;
  out.choice = choice;
  try {
    Candidate candidate(planner, choice, where);
    constexpr double never = std::numeric_limits<double>::max();
    double fastest = never, best = never, measured = 0.0;
    std::int64_t const steps = where.warm_up_steps + where.measured_steps;
    for (std::int64_t i = 0; i < steps || measured < where.measured_seconds; ++i) {
      double const seconds = candidate.step(static_cast<std::uint64_t>(i + 1));
      fastest = std::min(fastest, seconds);
      if (is_hopeless(i, fastest, useful_seconds)) {
        out.refused = fmt::format("given up: a step took {:.3g} s", fastest);
        return out;
      }
      if (i >= where.warm_up_steps) {
        best = std::min(best, seconds);
        measured += seconds;
      }
      if (is_asked_to_stop(where.comm)) {
        out.refused = "asked to stop";
        return out;
      }
    }
    out.seconds = best;
  } catch (OutOfMemoryError const& e) {  // on all ranks
    out.refused = e.what();
  } catch (ConfigError const& e) {
    out.refused = e.what();
  } catch (IoError const& e) {
    out.refused = e.what();
  }
  return out;
}

}  // namespace tessera::plan
