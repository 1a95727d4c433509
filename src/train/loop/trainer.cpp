#include "tessera/train/loop/trainer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tessera/config/learning_rate.hpp"
#include "tessera/config/node_groups.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/topology/cores.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/topology/rank_groups.hpp"
#include "tessera/train/generate/text_generation.hpp"
#include "tessera/train/loop/model_export.hpp"
#include "tessera/train/loop/save_policy.hpp"
#include "tessera/train/loop/training_loop.hpp"
#include "tessera/train/report/used_paths.hpp"
#include "tessera/train/setup/node_memory.hpp"
#include "tessera/train/setup/reference_model.hpp"
#include "tessera/train/setup/training_setup.hpp"
#include "tessera/train/step/flops_table.hpp"
#include "tessera/train/step/preference.hpp"
#include "tessera/train/step/stop_request.hpp"
#include "tessera/train/step/verification.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

/// Steps after the first one until the operands of a block repeat where they will: buffers that
/// several units use one after the other come back after some steps.
constexpr std::int64_t steps_until_steady = 9;

TrainingLoop::Options loop_options(config::TrainingArguments const& arguments,
                                   TrainingRun const& run) {
  std::int64_t const total = run.sampler->total_steps(), per_epoch = run.sampler->steps_per_epoch();
  TrainingLoop::Options options;
  options.evaluate = {arguments.eval_strategy, config::step_interval(arguments.eval_steps, total),
                      per_epoch, total, arguments.eval_delay};
  options.save = {arguments.save_strategy, config::step_interval(arguments.save_steps, total),
                  per_epoch, total};
  options.evaluate_on_start = arguments.eval_on_start;
  options.updates = {run.config.product_dtype, run.engine->config().loss_scaler,
                     arguments.max_skipped_steps, run.source.weights};
  options.tokens_per_sample = run.data.train->length();
  options.output_dir = arguments.output_dir.string();
  options.best = best_model_options(arguments);
  return options;
}

RunLog::TrainingOptions log_options(config::TrainingArguments const& arguments,
                                    TrainingRun const& run) {
  std::int64_t const total = run.sampler->total_steps();
  RunLog::TrainingOptions options;
  options.total_steps = total;
  options.logging_steps = config::step_interval(arguments.logging_steps, total);
  options.show_loss_scale = run.config.product_dtype == Dtype::fp16;
  options.tokens_per_sample = run.data.train->length();
  options.strategy = arguments.logging_strategy;
  options.steps_per_epoch = run.sampler->steps_per_epoch();
  options.steps_per_print = run.config.reporting.steps_per_print;
  options.filter_nonfinite = arguments.logging_nan_inf_filter;
  options.counts_input_tokens = arguments.include_num_input_tokens_seen != "no";
  return options;
}

TrainingStep::Options step_options(config::TrainingArguments const& arguments,
                                   TrainingRun const& run) {
  TrainingStep::Options options;
  options.micro_batch_size = run.config.micro_batch_size;
  options.dropout_seed = static_cast<std::uint64_t>(arguments.seed);
  options.recompute = arguments.recompute;
  options.cpu_checkpointing = run.config.cpu_checkpointing;
  options.beta1 = config::beta1_schedule(run.config.scheduler, run.sampler->total_steps());
  options.loader = {static_cast<int>(arguments.dataloader_num_workers),
                    arguments.dataloader_prefetch_factor.value_or(2)};
  return options;
}

StepRequests poll_requests(bool is_root, Deadline const& deadline, SavePolicy const& saves,
                           RunLock const* lock) {
  StepRequests requests;
  requests.stop = StopRequest::signal();
  if (requests.stop == 0 && is_root && deadline.due(Deadline::Clock::now()))
    requests.stop = StopRequest::time_limit;
  requests.save = StopRequest::take_save();
  requests.disk_busy = saves.disk_busy();
  requests.lock_lost = lock && !lock->held();
  return requests;
}

/// What bits depend on besides weights and samples: the same on ranks that verify each other.
std::string machine_text() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  int const device = memory::Runtime::device();
  return concat(memory::Runtime::threads(), " threads, ", topology::processor_model(cpuinfo),
                device < 0 ? "" : ", " + memory::describe_device(device).name);
}

/// Refuses --verify_steps where equal passes may give different bits. Collective.
void check_verification(JobContext const& job, TrainingRun const& run) {
  auto const& a = job.arguments;
  if (!a.do_train || a.verify_steps == 0 || job.comm.size() == 1) return;
  TESSERA_VALIDATE(a.deterministic, ConfigError,
                   "--verify_steps with --deterministic false: sums in any order give other bits "
                   "when they are computed again; leave one of them out");
  TESSERA_VALIDATE(
      run.mesh->data_size() == job.comm.size(), ConfigError,
      "--verify_steps on ranks that share a micro-batch: only ranks with micro-batches "
      "of their own can verify each other");
  TESSERA_VALIDATE(a.on_corruption != config::OnCorruption::warn || !run.config.error_feedback,
                   ConfigError,
                   "--on_corruption warn with errors of quantized gradients that are kept: a step "
                   "that is computed again would add them twice; use exclude or stop");
  auto const mine = machine_text(), first = comm::broadcast_bytes(job.comm, mine, 0);
  bool const equal = comm::agree(job.comm, mine == first);
  TESSERA_VALIDATE(equal, ConfigError, "--verify_steps on ranks whose bits may differ: ",
                   mine == first ? concat("another rank differs from this one (", mine, ")")
                                 : concat("this rank has ", mine, ", and rank 0 has ", first),
                   "; give the same --threads to all ranks and use nodes of one kind, or leave the "
                   "option out");
}

/// Makes the verifier of --verify_steps; null without it.
std::unique_ptr<Verifier> make_verifier(JobContext const& job, TrainingRun const& run) {
  if (job.arguments.verify_steps == 0) return nullptr;
  if (job.comm.size() == 1) {
    log::warning("--verify_steps has no effect on one rank: no other rank can compute again");
    return nullptr;
  }
  auto const action = job.arguments.on_corruption;
  bool const warns = action == config::OnCorruption::warn;
  Verifier::Options out;
  out.interval = job.arguments.verify_steps;
  out.hosts = job.session.hosts();
  out.warns_only = warns;
  out.report = [&job, warns,
                action = std::string(config::enum_names<config::OnCorruption>.at(
                    static_cast<std::size_t>(action)))](std::vector<Corruption> const& found) {
    if (!job.is_root()) return;
    job.status.set("corruption", found.front().tree().set("action", action));
    for (auto const& one : found)
      if (warns)
        log::error(one.text() + (one.finding.what >= Finding::What::states
                                     ? "; training continues with them"
                                     : "; the step is computed again, once"));
  };
  return std::make_unique<Verifier>(run.model_context(), *run.engine, std::move(out));
}

/// Compares what ranks have copies of before it is saved.
decltype(SavePolicy::Options::check) save_check(Verifier* verifier) {
  if (!verifier) return {};
  return [verifier](std::int64_t step, checkpoint::StateViews const& states) {
    verifier->compare_copies(step, states);
  };
}

/// The options that have an effect, and the resolved values.
TrackedRun tracked_run(config::TrainingArguments const& arguments, TrainingRun const& run) {
  TrackedRun out{arguments.output_dir, arguments.run_name};
  if (out.name.empty()) out.name = fs::absolute(out.output_dir / "").parent_path().filename();
  auto const& table = config::argument_table();
  for (auto const& option : table.options())
    if (option.support == config::Support::full)
      out.parameters.set(option.name, arguments.values.value(table, option.name));
  auto const resolved = config::describe(run.config);
  for (auto const& [name, described] : resolved.as_object()) {
    auto const* value = described.find("value");  // next to its origin
    out.parameters.set(name, value ? *value : described);
  }
  out.parameters.set("model/num_parameters", run.engine->plan().parameter_count());
  return out;
}

/// The model is written, but not the last checkpoint.
std::string unsaved_text(fs::path const& output_dir, std::int64_t saved, std::string const& why) {
  std::string const text = concat("training is complete and its model is in ", output_dir.string(),
                                  ", but the last checkpoint could not be written (", why, "); ");
  if (saved <= 0)
    return text + "this training cannot be continued, because no checkpoint was written";
  return concat(text, "the newest one is of step ", saved,
                ": correct that, and run the same command again to repeat the steps after it");
}

ProfiledStep profiled_step(TrainingRun const& run, std::int64_t step, StepOutcome const& outcome,
                           int ranks) {
  return {.step = step,
          .sequences = run.config.micro_batch_size * run.config.accumulation_steps,
          .sequence_length = run.data.train->length(),
          .hidden_size = model::hidden_size(run.model->config()),
          .vocabulary = run.model->vocabulary_size(),
          .ranks = ranks,
          .phases = outcome.phases.value_or(PhaseTimes{})};
}

/// The table of flops_profiler, to its file or the log. A file that cannot be written is a warning.
void report_flops(TrainingRun const& run, ProfiledStep const& step, PassTimer const& timer) {
  auto const& options = *run.config.reporting.flops_profiler;
  auto const text =
      flops_table(profile_units(run.model->units(), timer.units(), step), step, options);
  if (options.output_file.empty()) return log::info(text);
  try {
    write_file_atomically(options.output_file, text);
    log::info("wrote the profile to " + options.output_file.string());
  } catch (IoError const& e) {
    log::warning(concat("the profile could not be written: ", e.what()));
  }
}

/// On a device the host only enqueues the layers, so that asking between them would stop nothing.
std::function<void()> layer_check(StopCheck& check, TrainingRun const& run) {
  if (run.compute->kind() != memory::QueueKind::inline_host) return {};
  return [&check] { check.between_layers(); };
}

}  // namespace

Trainer::Trainer(JobContext const& job) : job_(job) {}
Trainer::~Trainer() = default;

std::unique_ptr<model::CausalLm> Trainer::create_model(ConfigTree const& config,
                                                       model::ModelOptions const& options) {
  return model::make_model(config, options);
}
TrainingData Trainer::create_data(ModelSource const& source, model::CausalLm const& model) {
  return load_training_data(job_.arguments, source, model, job_.session, job_.comm);
}
optim::OptimizerSpec Trainer::create_optimizer(config::ResolvedConfig const& config) {
  return config.optimizer;
}
optim::Schedule Trainer::create_schedule(config::ResolvedConfig const& config, std::int64_t steps) {
  return config::learning_rate_schedule(config, steps);
}
model::LogitLoss* Trainer::compute_loss(ModelContext const& /*context*/,
                                        model::Batch const& /*batch*/) {
  return nullptr;
}
StepOutcome Trainer::training_step(std::int64_t /*step*/,
                                   std::function<StepOutcome()> const& standard) {
  return standard();
}
double Trainer::prediction_step(ModelContext const& context, model::Batch const& batch) {
  return context.model.evaluate(batch, context.weights, context.compute).value();
}
EvaluationResult Trainer::evaluate(Evaluator& evaluator) { return evaluator.evaluate(); }
EvaluationResult Trainer::predict(Evaluator& evaluator) { return evaluator.evaluate(); }
void Trainer::log(std::int64_t /*step*/, StepOutcome const& /*outcome*/) {}

PartMakers Trainer::makers() {
  return {
      .model = [this](auto const& config,
                      auto const& options) { return create_model(config, options); },
      .data = [this](auto const& source, auto const& model) { return create_data(source, model); },
      .optimizer = [this](auto const& config) { return create_optimizer(config); },
      .schedule = [this](auto const& config,
                         std::int64_t steps) { return create_schedule(config, steps); }};
}

void Trainer::prepare_preferences(TrainingRun& run) {
  auto const& a = job_.arguments;
  if (a.task != config::Task::dpo) return;
  reference_ = std::make_unique<ReferenceModel>(job_, run);
  for (auto* const data : {&run.data.train, &run.data.evaluation, &run.data.test}) {
    if (!*data) continue;
    Preference::Reference reference = [this](model::Batch const& batch) {
      return reference_->log_probabilities(batch);
    };
    std::int64_t const samples =
        data == &run.data.train ? run.config.micro_batch_size : a.per_device_eval_batch_size;
    if (a.precompute_ref_log_probs)
      reference = [known =
                       reference_->log_probabilities(**data, samples)](model::Batch const& batch) {
        std::vector<double> out;
        for (std::int64_t i = 0; i < batch.rows; ++i)
          out.push_back(known[static_cast<std::size_t>(2 * batch.samples[i / 2] + i % 2)]);
        return out;
      };
    preferences_[data] = std::make_unique<Preference>(
        PreferenceOptions{a.loss_type, a.beta, a.label_smoothing}, std::move(reference));
  }
  if (a.precompute_ref_log_probs) reference_.reset();
}

Preference* Trainer::preference_of(std::optional<data::TokenSequences> const& data) const {
  auto const found = preferences_.find(&data);
  return found == preferences_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Evaluator> Trainer::make_evaluator(TrainingRun const& run,
                                                   std::optional<data::TokenSequences> const& data,
                                                   StopCheck& stop_check) {
  if (!data) return nullptr;
  auto const context = run.model_context();
  auto out = std::make_unique<Evaluator>(context, *data, job_.arguments.per_device_eval_batch_size,
                                         [this, &stop_check] {
                                           job_.status.touch();
                                           stop_check.ask();
                                         });
  if (run.config.reproducible_world()) out->use_exact_sums();
  out->set_preference(preference_of(data));
  out->set_prediction_step(
      [this, context](model::Batch const& batch) { return prediction_step(context, batch); });
  return out;
}

EvaluationResult Trainer::evaluate_and_report(std::int64_t step, TrainingRun const& run,
                                              RunLog& log, Between const& between) {
  if (!job_.arguments.eval_prompts.empty())
    log.samples(step, sample_texts(job_, run, between.stop_check));
  auto const result = evaluate(*between.evaluator);
  for (auto const& callback : callbacks_) callback->on_evaluate(step, result);
  return result;
}

Outcome Trainer::run() {
  auto const& arguments = job_.arguments;
  TrainingSetup setup(job_, makers());
  auto const& config = setup.resolve();
  config::check_nodes_of_tree(config, topology::uniform_node_size(job_.session.nodes()));
  TESSERA_VALIDATE(!config.reproducible_world() || arguments.threads ||
                       std::getenv("OMP_NUM_THREADS") != nullptr,
                   ConfigError,
                   "--reproducible world without --threads: matrix products divide their sums by "
                   "the threads, whose number would follow the ranks of a node; give the same "
                   "--threads to all runs");
  if (arguments.print_config) {
    if (job_.is_root()) std::printf("%s\n", config::describe(config).dump(2).c_str());
    return {};
  }
  TrainingRun& run = run_.emplace(setup.build());
  check_verification(job_, run);
  RunLog log(arguments.output_dir, job_.is_root() ? RunLog::Role::writer : RunLog::Role::silent);
  comm::run_on_ranks(job_.comm, job_.is_root(), [&] { open_run_files(run, log); });
  StopCheck stop_check(job_.comm, [] { return StopRequest::signal(); });
  prepare_preferences(run);
  auto const evaluator = make_evaluator(run, run.data.evaluation, stop_check);

  Outcome outcome;
  if (arguments.do_train) outcome = train(run, log, {stop_check, evaluator.get()});
  if (outcome.code == ExitCode::done && evaluator)
    outcome = run_evaluation(run, log, {stop_check, evaluator.get()});
  if (outcome.code == ExitCode::done && run.data.test)
    outcome = run_prediction(run, log, stop_check);
  log.summary();
  if (outcome.code == ExitCode::done) log.end_run();
  job_.status.set("memory", memory_tree(run.weights->memory().swapped));
  if (outcome.code == ExitCode::done && arguments.do_generate)
    outcome = generate_text(job_, run, stop_check);
  if (outcome.code == ExitCode::done && !unsaved_.empty()) return {ExitCode::io, unsaved_};
  return outcome;
}

/// Once nothing can be refused any more: removes the previous run's files and opens metrics.jsonl.
void Trainer::open_run_files(TrainingRun const& run, RunLog& log) const {
  auto const& arguments = job_.arguments;
  if (!arguments.eval_prompts.empty()) {
    TESSERA_VALIDATE(!run.source.tokenizer_directory.empty(), UsageError,
                     "--eval_prompts needs a tokenizer; give --tokenizer_name DIR");
    read_prompts(arguments.eval_prompts);  // a file that cannot be read is refused before a step
  }
  if (arguments.do_train) {
    if (run.starts_over) remove_previous_run(arguments.output_dir);
    job_.status.training_begins(name_of_job(), run.own_checkpoint);
    for (auto const& name :
         checkpoint::remove_unfinished_saves(arguments.output_dir / "checkpoints"))
      log::info("removed " + name + ", left by an interrupted save");
  }
  if (arguments.do_train || arguments.do_eval)
    log.open_metrics(
        arguments.do_train ? run.state.first_step : INT64_MAX,
        run.state.evaluation_interrupted ? LastEvaluation::repeated : LastEvaluation::kept);
  auto const& r = run.config.reporting;
  if (arguments.do_train && r.has_monitors())
    log.open_monitors(r, {run.state.first_step, run.state.samples, tracked_run(arguments, run)});
}

Outcome Trainer::train(TrainingRun& run, RunLog& log, Between const& between) {
  auto const& arguments = job_.arguments;
  std::int64_t const total = run.sampler->total_steps(), first = run.state.first_step;
  auto const verifier = make_verifier(job_, run);
  SavePolicy saves(
      {arguments.async_save, arguments.max_save_failures, job_.session.info().local_size,
       memory::Runtime::threads(), total, save_check(verifier.get()),
       node_memory(arguments, job_.session, topology::process_environment()),
       arguments.memory_save_steps, first, job_.session.hosts()},
      {job_.comm, *run.engine, job_.status, log, deadline_},
      [&](std::int64_t step, SaveContent content) {
        return save_request(job_, run, step, content);
      });
  if (run.saved_step >= 0) saves.resumed_from(run.saved_step, run.state.skipped_in_a_row);
  PassTimer timer(*run.compute, run.model->units().size() - 2);
  auto of_step = step_options(arguments, run);
  of_step.between_layers = layer_check(between.stop_check, run);
  if (run.config.reporting.wall_clock_breakdown) of_step.timer = &timer;
  of_step.loss = [this, context = run.model_context()](model::Batch const& batch) {
    return compute_loss(context, batch);
  };
  of_step.preference = preference_of(run.data.train);
  of_step.verifier = verifier.get();
  StragglerWatch stragglers(job_.comm, job_.session.hosts());
  of_step.requests = [&] {
    auto requests = poll_requests(job_.is_root(), deadline_, saves, run.lock.get());
    requests.is_slow = stragglers.is_slow();
    return requests;
  };
  TrainingStep step(run.model_context(), *run.engine, *run.data.train, of_step);
  auto options = loop_options(arguments, run);
  options.after_step = [&](std::int64_t at, StepOutcome const& outcome) {
    report_step(run, at, outcome, timer);
    this->log(at, outcome);
    for (auto const& callback : callbacks_) callback->on_step_end(at, outcome);
  };
  options.training_step = [&](std::int64_t at, double learning_rate) {
    return training_step(at, [&] { return step.run(at, *run.sampler, learning_rate); });
  };
  options.evaluation = [&](std::int64_t at) { return evaluate_and_report(at, run, log, between); };
  TrainingLoop loop(std::move(options), {job_.comm, step, *run.sampler, run.schedule, run.state,
                                         between.evaluator, saves, log, job_.status, deadline_,
                                         between.stop_check, of_step.requests, &stragglers});

  require_room(job_, run);
  log.begin_training(log_options(arguments, run));
  if (first > total) {
    job_.status.update(StatusFile::State::running, first - 1, total);
    log.info(fmt::format("all {} steps are already done", total));
  }
  for (auto const& callback : callbacks_) callback->on_train_begin(run);
  auto const started = std::chrono::steady_clock::now();
  auto const outcome = loop.run();
  if (outcome.code != ExitCode::done) return outcome;
  double const seconds = seconds_since(started);
  last_step_ = loop.last_step();
  if (arguments.load_best_model_at_end) load_best_model(job_, run, last_step_);
  export_model(job_, run, saves.last_saved_step());
  if (first <= last_step_)
    log.training_results({epochs_after(*run.sampler, last_step_), seconds, last_step_ - first + 1,
                          run.data.train->count(), run.config.train_batch_size, last_step_,
                          last_step_ - run.state.applied_steps});
  for (auto const& callback : callbacks_) callback->on_train_end(run);
  if (auto const& why = saves.last_failure(); why.empty())
    job_.status.training_completed();
  else
    unsaved_ = unsaved_text(arguments.output_dir, saves.last_saved_step(), why);
  return outcome;
}

/// When the depth has been chosen, or another one.
void Trainer::report_prefetch(zero::Engine const& engine) {
  auto const report = engine.prefetch();
  if (!report || report == reported_prefetch_) return;
  reported_prefetch_ = report;
  log::info(prefetch_text(*report));
  job_.status.set("prefetch", prefetch_status(*report));
}

/// When the blocks' operands have had time to repeat.
void Trainer::report_graphs(std::int64_t step, memory::GraphLaunches const& launches) {
  std::string const text = graph_text(step, launches);
  launches.replayed > 0 ? log::info(text) : log::warning(text);
  job_.status.set("device_graphs", graph_status(launches));
}

/// memory_breakdown and flops_profiler.
void Trainer::report_step(TrainingRun const& run, std::int64_t step, StepOutcome const& outcome,
                          PassTimer const& timer) {
  auto const& reporting = run.config.reporting;
  if (!job_.is_root()) return;
  report_prefetch(*run.engine);
  if (step == run.state.first_step) {
    auto const& engine = run.engine->config();
    log::info(concat("uses: ", used_paths_text(engine, job_.comm.size())));
    job_.status.set("uses", used_paths(engine, job_.comm.size()));
  }
  if (outcome.graphs.total() > 0 && step == run.state.first_step + steps_until_steady)
    report_graphs(step, outcome.graphs);
  if (reporting.memory_breakdown && step == run.state.first_step) log::info(memory_text());
  if (reporting.flops_profiler && step == reporting.flops_profiler->step)
    report_flops(run, profiled_step(run, step, outcome, job_.comm.size()), timer);
}

Outcome Trainer::run_evaluation(TrainingRun const& run, RunLog& log, Between const& between) try {
  std::int64_t const step = run.sampler ? last_step_ : run.state.first_step - 1;
  auto const result = evaluate_and_report(step, run, log, between);
  log.evaluation(step, run.sampler ? epochs_after(*run.sampler, step) : 0.0, result);
  return {};
} catch (StopBetweenLayers const& e) {
  return {ExitCode::stopped_early,
          concat("stopped by ", StopRequest::name(e.request), " during the evaluation",
                 run.sampler ? " after the training" : "",
                 "; run the same command again to repeat it")};
}

Outcome Trainer::run_prediction(TrainingRun const& run, RunLog& log, StopCheck& stop_check) try {
  log.prediction(predict(*make_evaluator(run, run.data.test, stop_check)));
  return {};
} catch (StopBetweenLayers const& e) {
  return {ExitCode::stopped_early, concat("stopped by ", StopRequest::name(e.request),
                                          " during the prediction; run the same command again to "
                                          "repeat it")};
}

}  // namespace tessera::train
