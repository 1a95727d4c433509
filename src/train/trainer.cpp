#include "tessera/train/trainer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "tessera/checkpoint/save/save.hpp"
#include "tessera/config/learning_rate.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/registry.hpp"
#include "tessera/train/engine_config.hpp"
#include "tessera/train/results.hpp"
#include "tessera/train/run_directory.hpp"
#include "tessera/train/stop_request.hpp"

namespace tessera::train {
namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<memory::Queue> compute_queue(config::TrainingArguments const& arguments) {
  if (memory::Runtime::device() < 0) return memory::make_inline_queue("compute");
  auto const graph_mode =
      arguments.cuda_graphs ? memory::GraphMode::capture : memory::GraphMode::off;
  return memory::make_stream_queue("compute", memory::StreamPriority::normal, graph_mode);
}

std::int64_t hidden_size_of(ConfigTree const& config) {
  for (char const* key : {"n_embd", "hidden_size"})
    if (config.contains(key)) return config.at(key).as_int();
  return 0;
}

}  // namespace

/// What all ranks know about a step once it is done.
struct Trainer::StepOutcome {
  double loss = 0.0;  ///< token mean over the global batch
  std::int64_t tokens = 0, samples = 0;
  double learning_rate = 0.0;
  zero::StepResult update;
  double seconds = 0.0;
  int stop = 0;             ///< 0: go on; else the highest StopRequest number any rank has seen
  bool save_asked = false;  ///< some rank has been asked to save
  bool disks_rest = false;  ///< no rank's disk is at work for a save
};

Trainer::Trainer(config::TrainingArguments const& arguments, topology::MpiSession const& session,
                 comm::Collectives& comm, StatusFile& status)
    : arguments_(arguments),
      session_(session),
      comm_(comm),
      status_(status),
      compute_(compute_queue(arguments)) {}

Trainer::~Trainer() = default;

Outcome Trainer::run() {
  source_ = find_model(arguments_, comm_);
  config_ = config::resolve(arguments_, comm_.size(), hidden_size_of(source_.config));
  if (arguments_.print_config) {
    if (is_root()) std::printf("%s\n", config::describe(config_).dump(2).c_str());
    return {};
  }
  auto const start = prepare_run_directory(arguments_, comm_, lock_);
  status_.update(StatusFile::State::starting, 0, 0);
  if (lock_ && !lock_->replaced().empty())
    log::info("the former job in " + arguments_.output_dir.string() +
              " is gone: " + lock_->replaced());
  if (is_root())
    for (auto const* notes : {&arguments_.hints, &std::as_const(config_).notes})
      for (auto const& note : *notes) log::info("note: " + note);
  model_ = model::make_model(source_.config, config_.dtype);
  load_data();
  build_engine();
  plan_steps();
  say_what_runs();
  start_from(start);
  if (is_root()) open_run_files(start.checkpoint.empty() && arguments_.overwrite_output_dir);

  Outcome outcome;
  if (arguments_.do_train) outcome = train();
  if (outcome.code != ExitCode::done) return outcome;
  if (arguments_.do_eval && eval_blocks_) evaluate(sampler_ ? sampler_->total_steps() : 0);
  if (arguments_.do_generate) generate();
  return outcome;
}

/// Once model and data are in place and nothing more can be refused: clears what is in the way and
/// opens metrics.jsonl.
void Trainer::open_run_files(bool starts_anew) {
  if (arguments_.do_train) {
    if (starts_anew) remove_former_run(arguments_.output_dir);
    for (auto const& name : checkpoint::remove_abandoned(arguments_.output_dir / "checkpoints"))
      log::info("removed " + name + ", left by an interrupted save");
  }
  if (arguments_.do_train || arguments_.do_eval)
    metrics_ = std::make_unique<MetricsFile>(arguments_.output_dir,
                                             arguments_.do_train ? first_step_ : INT64_MAX);
}

void Trainer::build_engine() {
  engine_ = zero::make_engine(engine_config(config_), model_->units(), comm_, *compute_);
  saver_ = std::make_unique<checkpoint::Saver>(comm_, memory::Runtime::threads());
  if (arguments_.do_train && arguments_.async_save == config::AsyncSave::on &&
      !engine_->state_is_snapshot())
    saver_->reserve(engine_->plan(),
                    checkpoint_states);  // what was asked for must not be missing at the first save
}

void Trainer::plan_steps() {
  if (!arguments_.do_train) return;
  data::SamplerConfig plan;
  plan.samples = train_blocks_->count();
  plan.ranks = comm_.size();
  plan.micro_batch = config_.micro_batch_size;
  plan.accumulation_steps = config_.accumulation_steps;
  plan.epochs = arguments_.num_train_epochs;
  plan.max_steps = arguments_.max_steps;
  plan.order = arguments_.train_sampling_strategy == config::Sampling::random
                   ? data::SampleOrder::random
                   : data::SampleOrder::sequential;
  plan.seed = static_cast<std::uint64_t>(arguments_.data_seed.value_or(arguments_.seed));
  plan.last_micro_step =
      arguments_.dataloader_drop_last ? data::LastMicroStep::drop : data::LastMicroStep::fill;
  sampler_.emplace(plan);
  schedule_ = config::learning_rate_schedule(config_, sampler_->total_steps());
}

void Trainer::start_weights() {
  engine_->initialize(initial_weights(
      source_, model_->units(), static_cast<std::uint64_t>(arguments_.seed), session_, comm_));
}

void Trainer::say_what_runs() const {
  if (!is_root()) return;
  auto const& info = session_.info();
  log::info(fmt::format(
      "{} {}: {} parameters, {} weights; ZeRO stage {} on {} {} ({} {}), {}", model_->family(),
      source_.weights_directory.empty() ? "from random weights"
                                        : "from " + source_.weights_directory.string(),
      with_commas(engine_->plan().parameter_count()), name_of(config_.dtype), config_.stage,
      info.world_size, plural(info.world_size, "rank"), info.node_count,
      plural(info.node_count, "node"), memory::Runtime::description()));
  if (sampler_)
    log::info(fmt::format("{} samples of {} tokens, {} a step ({} x {} x {}), {} steps",
                          with_commas(train_blocks_->count()), train_blocks_->length(),
                          config_.train_batch_size, config_.micro_batch_size,
                          config_.accumulation_steps, comm_.size(),
                          with_commas(sampler_->total_steps())));
  auto const m = engine_->memory();
  auto const bytes = [](std::size_t count) {
    return human_bytes(static_cast<std::int64_t>(count));
  };
  log::info(
      fmt::format("model states of a rank: {} (weights {}, gradients {}, masters {}, optimizer {}; "
                  "stage formula {}), buffers {}",
                  bytes(m.weights + m.gradients + m.masters + m.optimizer_state), bytes(m.weights),
                  bytes(m.gradients), bytes(m.masters), bytes(m.optimizer_state), bytes(m.formula),
                  bytes(m.buffers)));
}

Outcome Trainer::train() {
  std::int64_t const total = sampler_->total_steps();
  progress_ = std::make_unique<Progress>(is_root(), total);
  if (arguments_.eval_on_start && first_step_ == 1 && eval_blocks_) evaluate(0);
  if (first_step_ > total && is_root())
    log::info(fmt::format("all {} steps are done already", total));
  auto const started = Clock::now();
  line_started_ = started;
  std::int64_t step = first_step_;
  for (; step <= total; ++step) {
    status_.update(StatusFile::State::running, step - 1, total);
    auto const step_started = Clock::now();
    auto const saving_before = saving_;
    StepOutcome const outcome = train_step(step);
    if (outcome.disks_rest) advance_save();
    check_loss(step, outcome);
    after_step(step, outcome);
    if (outcome.stop != 0 && step < total) return stop_after(step, outcome.stop);
    if (outcome.save_asked && step < total && last_saved_step_ != step && saver_->step() != step)
      save_checkpoint(step, SaveMode::go_on, SaveContent::whole);
    deadline_.step_took(Clock::now() - step_started - (saving_ - saving_before));
  }
  progress_->clear();
  finish_save();
  if (first_step_ <= total) write_train_results(seconds_since(started));
  write_model();
  return {};
}

Outcome Trainer::stop_after(std::int64_t step, int request) {
  progress_->clear();
  finish_save();
  if (last_saved_step_ != step) save_checkpoint(step, SaveMode::wait, SaveContent::whole);
  std::string reason = concat("stopped by ", StopRequest::name(request), " after step ", step,
                              " of ", sampler_->total_steps());
  if (last_saved_step_ != step)
    reason += concat("; its checkpoint could not be written, ",
                     last_saved_step_ > 0 ? concat("the newest is of step ", last_saved_step_)
                                          : std::string("and there is none"));
  return {ExitCode::stopped_early, reason + "; run the same command again to go on"};
}

Trainer::StepOutcome Trainer::train_step(std::int64_t step) {
  auto const started = Clock::now();
  StepOutcome outcome;
  auto const micro_batches = sampler_->micro_batches(step - 1, comm_.rank());
  outcome.samples = sampler_->samples(step - 1);
  outcome.tokens = outcome.samples * (train_blocks_->length() - 1);
  outcome.learning_rate = schedule_(applied_steps_ + 1);

  model::PassSettings settings;
  settings.dropout_seed = static_cast<std::uint64_t>(arguments_.seed);
  settings.step = static_cast<std::uint64_t>(step);
  settings.gradient_scale =
      static_cast<float>(engine_->loss_scale() / static_cast<double>(outcome.tokens));
  settings.gradient_checkpointing = arguments_.gradient_checkpointing;

  engine_->begin_step();
  std::vector<model::LossSum> losses;
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    engine_->begin_micro_step(static_cast<int>(i), static_cast<int>(micro_batches.size()));
    std::int64_t const first_row =
        (static_cast<std::int64_t>(i) * comm_.size() + comm_.rank()) * config_.micro_batch_size;
    losses.push_back(train_micro_batch(micro_batches[i], first_row, settings));
  }
  outcome.update = engine_->finish_step(outcome.learning_rate);
  if (!outcome.update.skipped) ++applied_steps_;

  std::vector<double> sums{0.0};
  for (auto const& loss : losses) sums[0] += loss.value();
  comm::all_reduce_values(comm_, sums, comm::ReduceOp::sum);
  outcome.loss = sums[0] / static_cast<double>(outcome.tokens);
  share_requests(outcome);
  outcome.seconds = seconds_since(started);
  return outcome;
}

/// Signals reach ranks at different steps, and only rank 0 knows the time limit: all act on what
/// any has seen.
void Trainer::share_requests(StepOutcome& outcome) {
  int stop = StopRequest::signal();
  if (stop == 0 && is_root() && deadline_.due(Deadline::Clock::now()))
    stop = StopRequest::time_limit;
  std::vector<double> highest{static_cast<double>(stop), StopRequest::take_save() ? 1.0 : 0.0,
                              saver_->disk_works() ? 1.0 : 0.0,
                              lock_ && !lock_->held() ? 1.0 : 0.0};
  comm::all_reduce_values(comm_, highest, comm::ReduceOp::max);
  outcome.stop = static_cast<int>(highest[0]);
  outcome.save_asked = highest[1] != 0.0;
  outcome.disks_rest = highest[2] == 0.0;
  TESSERA_VALIDATE(highest[3] == 0.0, train::DirectoryInUse,
                   "another job has taken over the output directory ",
                   arguments_.output_dir.string(),
                   " while this one stood still; this one ends and leaves everything to it");
}

model::LossSum Trainer::train_micro_batch(data::MicroBatch const& samples,
                                          std::int64_t first_global_row,
                                          model::PassSettings const& settings) {
  std::int64_t const length = train_blocks_->length();
  tokens_.clear();
  for (std::int64_t const sample : samples) {
    auto const block = (*train_blocks_)[sample];
    tokens_.insert(tokens_.end(), block.begin(), block.end());
  }
  model::Batch const batch{tokens_.data(), static_cast<std::int64_t>(samples.size()), length,
                           first_global_row};
  return model_->train(batch, settings, *engine_, *compute_);
}

/// A loss that is no number ends the run before another checkpoint could be begun; fp16 with
/// dynamic scaling has its own remedy.
void Trainer::check_loss(std::int64_t step, StepOutcome const& outcome) {
  if (std::isfinite(outcome.loss) || (config_.dtype == Dtype::fp16 && outcome.update.skipped))
    return;
  finish_save();
  std::string const saved = last_saved_step_ > 0
                                ? concat("; the checkpoint of step ", last_saved_step_, " is whole")
                                : "; there is no checkpoint yet";
  throw ConfigError(concat("the loss of step ", step, " is ", outcome.loss, " (gradient norm ",
                           outcome.update.grad_norm, ", learning rate ", outcome.learning_rate,
                           "): training has diverged. Try a lower --learning_rate, more "
                           "--warmup_steps, or --max_grad_norm 1",
                           config_.dtype == Dtype::fp32 ? "" : ", or fp32", saved));
}

bool Trainer::due(config::Interval strategy, double every, std::int64_t step) const {
  std::int64_t const total = sampler_->total_steps();
  switch (strategy) {
    case config::Interval::no:
      return false;
    case config::Interval::steps:
      return step % config::step_interval(every, total) == 0 || step == total;
    case config::Interval::epoch:
      return step % sampler_->steps_per_epoch() == 0 || step == total;
  }
  return false;
}

double Trainer::epoch_of(std::int64_t step) const {
  return step > 0 ? sampler_->position(step - 1).epochs_completed : 0.0;
}

void Trainer::after_step(std::int64_t step, StepOutcome const& outcome) {
  std::int64_t const total = sampler_->total_steps();
  tokens_seen_ += outcome.samples * train_blocks_->length();
  samples_seen_ += outcome.samples;
  tokens_since_line_ += outcome.samples * train_blocks_->length();
  loss_since_line_ += outcome.loss;
  loss_of_run_ += outcome.loss;
  ++steps_since_line_;
  double const rate = static_cast<double>(tokens_since_line_) / seconds_since(line_started_);
  if (metrics_) {
    ConfigTree record;
    record.set("step", step)
        .set("epoch", epoch_of(step))
        .set("loss", outcome.loss)
        .set("grad_norm", outcome.update.grad_norm);
    record.set("learning_rate", outcome.learning_rate)
        .set("loss_scale", outcome.update.loss_scale)
        .set("skipped", outcome.update.skipped);
    record.set("seconds", outcome.seconds)
        .set("tokens_per_second", rate)
        .set("tokens", tokens_seen_);
    metrics_->write(record);
  }
  bool const line = step % config::step_interval(arguments_.logging_steps, total) == 0 ||
                    (step == 1 && arguments_.logging_first_step) || step == total;
  if (line) {
    progress_->line({step, loss_since_line_ / static_cast<double>(steps_since_line_),
                     outcome.update.grad_norm, outcome.learning_rate, rate,
                     outcome.update.loss_scale, config_.dtype == Dtype::fp16});
    loss_since_line_ = 0.0;
    steps_since_line_ = tokens_since_line_ = 0;
  } else {
    progress_->live(step);
  }
  if (eval_blocks_ && due(arguments_.eval_strategy, arguments_.eval_steps, step) && step < total)
    evaluate(step);
  if (due(arguments_.save_strategy, arguments_.save_steps, step))
    save_checkpoint(step, step < total ? SaveMode::go_on : SaveMode::wait, SaveContent::regular);
  if (line) line_started_ = Clock::now();
}

void Trainer::write_train_results(double seconds) {
  if (!is_root()) return;
  std::int64_t const steps = sampler_->total_steps() - first_step_ + 1;
  ConfigTree results;
  results.set("epoch", epoch_of(sampler_->total_steps()))
      .set("train_loss", loss_of_run_ / static_cast<double>(steps));
  results.set("train_runtime", seconds).set("train_samples", train_blocks_->count());
  results.set("train_samples_per_second",
              static_cast<double>(steps * config_.train_batch_size) / seconds);
  results.set("train_steps_per_second", static_cast<double>(steps) / seconds);
  write_results(arguments_.output_dir, "train", results);
}

}  // namespace tessera::train
