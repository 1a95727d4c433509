#include "tessera/train/loop/training_loop.hpp"

#include <csignal>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tessera/train/report/run_lock.hpp"
#include "tessera/train/step/stop_request.hpp"

namespace tessera::train {

namespace {

/// Attempts in a row that the batch system may stop after at most one step.
constexpr int most_short_attempts = 3;

/// Where a run that cannot continue may be resumed.
std::string checkpoints_text(SavePolicy const& saves) {
  std::int64_t const saved = saves.last_saved_step(), progress = saves.last_progress_step();
  if (saved <= 0) return "no checkpoint has been written yet";
  if (progress <= 0 || progress == saved)
    return concat("the checkpoint of step ", saved, " is complete");
  return concat("the newest checkpoint from before the skipped steps is of step ", progress,
                " (--resume_from_checkpoint ", progress, ")");
}

}  // namespace

TrainingLoop::TrainingLoop(Options options, Parts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      watch_(options_.updates, parts_.state) {
  if (options_.best) best_.emplace(*options_.best, parts_.state);
}

/// Training that cannot continue leaves the save in flight complete, and names it.
Outcome TrainingLoop::run() {
  complete_ = parts_.state.first_step - 1;
  try {
    return run_steps();
  } catch (ConfigError const& e) {
    parts_.log.clear_status_line();
    parts_.saves.finish();
    throw ConfigError(concat(e.what(), "; ", checkpoints_text(parts_.saves)));
  } catch (StopBetweenLayers const& e) {  // the incomplete step has changed no state
    return complete_ > 0 ? stop(complete_, e.request) : stop_before_first_step(e.request);
  }
}

Outcome TrainingLoop::run_steps() {
  using Clock = std::chrono::steady_clock;
  std::int64_t const total = parts_.sampler.total_steps();
  if (options_.evaluate_on_start && parts_.state.first_step == 1 && parts_.evaluator) evaluate(0);
  if (std::exchange(parts_.state.evaluation_interrupted, false) && complete_ > 0)
    run_events(complete_);
  if (complete_ < total && stops_early(complete_)) return finish(complete_);
  for (std::int64_t step = parts_.state.first_step; step <= total; ++step) {
    parts_.status.update(StatusFile::State::running, step - 1, total);
    auto const started = Clock::now();
    auto const blocked_before = parts_.saves.blocked();
    StepOutcome const outcome = train(step);
    StepRequests const requests = requests_after(outcome);
    if (!requests.disk_busy) parts_.saves.advance();
    log_step(step, outcome);
    watch_.require_progress(step, outcome);
    parts_.status.update(StatusFile::State::running, step, total);
    run_events(step);
    if (step < total && stops_early(step)) return finish(step);
    if (requests.stop != 0 && step < total) return stop(step, requests.stop);
    if (requests.save && step < total) save(step, SaveMode::background, SaveContent::resumable);
    if (step < total) parts_.saves.save_to_memory(step, requests.seconds);
    parts_.deadline.step_took(Clock::now() - started - (parts_.saves.blocked() - blocked_before));
  }
  return finish(total);
}

Outcome TrainingLoop::finish(std::int64_t step) {
  parts_.log.clear_status_line();
  parts_.saves.finish();
  watch_.training_done(step);
  return {};
}

/// The evaluations have not improved for long enough. The last checkpoint is of this step then.
bool TrainingLoop::stops_early(std::int64_t step) {
  if (!best_ || step == 0 || !best_->should_stop()) return false;
  parts_.log.info(concat("early stopping after step ", step, " of ", parts_.sampler.total_steps(),
                         ": no better evaluation than ", best_->best_text()));
  if (options_.save.interval != config::Interval::no)
    save(step, SaveMode::wait, SaveContent::regular);
  return true;
}

StepOutcome TrainingLoop::train(std::int64_t step) {
  parts_.stop_check.begin_step(seconds_of_last_step_);
  double const rate = parts_.schedule(parts_.state.applied_steps + 1);
  StepOutcome outcome;
  try {
    outcome = options_.training_step ? options_.training_step(step, rate)
                                     : parts_.step.run(step, parts_.sampler, rate);
  } catch (ConfigError const& e) {  // the loss scale is at its minimum
    throw ConfigError(concat(e.what(), ". ", watch_.advice()));
  }
  if (parts_.stragglers) outcome.stragglers = parts_.stragglers->after_step(step, outcome);
  watch_.count(outcome);
  parts_.state.tokens += outcome.tokens_read(options_.tokens_per_sample);
  parts_.state.samples += outcome.samples;
  complete_ = step;
  return outcome;
}

/// A step that replaces TrainingStep::run() may have asked nobody.
StepRequests TrainingLoop::exchange_requests(StepOutcome const& outcome) {
  if (outcome.requests) return *outcome.requests;
  auto mine = parts_.local_requests();
  mine.seconds = outcome.seconds;
  return agree_on_requests(parts_.comm, mine);
}

StepRequests TrainingLoop::requests_after(StepOutcome const& outcome) {
  auto const requests = exchange_requests(outcome);
  seconds_of_last_step_ = requests.seconds;
  TESSERA_VALIDATE(!requests.lock_lost, train::DirectoryInUse,
                   "another job took over the output directory ", options_.output_dir,
                   " while this job was suspended; this job ends and leaves the files to it");
  return requests;
}

void TrainingLoop::log_step(std::int64_t step, StepOutcome const& outcome) {
  if (outcome.update.skipped)
    parts_.log.info(concat("step ", step, " skipped: gradients are not finite",
                           options_.updates.dtype == Dtype::fp16
                               ? concat(" at loss scale ", outcome.update.loss_scale)
                               : ""));
  if (std::string const phase = outcome.update.phase; phase != optimizer_phase_) {
    optimizer_phase_ = phase;
    parts_.log.info(concat("phase of the optimizer from step ", step, " on: ", phase));
    parts_.status.set("optimizer_phase", phase);
  }
  if (parts_.stragglers) log_stragglers(outcome.stragglers);
  parts_.log.step({step, epochs_after(parts_.sampler, step), parts_.state.tokens, outcome,
                   step - parts_.state.applied_steps, parts_.state.samples});
  if (options_.after_step) options_.after_step(step, outcome);
}

/// A rank that stays slow is logged once.
void TrainingLoop::log_stragglers(std::vector<Straggler> const& named) {
  auto const& current = parts_.stragglers->current();
  if (named.empty() && current.size() == slow_ranks_.size()) return;
  for (auto const& straggler : named)
    if (std::ranges::find(slow_ranks_, straggler.rank) == slow_ranks_.end())
      parts_.log.warning(text_of(straggler));
  slow_ranks_.clear();
  for (auto const& straggler : current) slow_ranks_.push_back(straggler.rank);
  parts_.status.set("stragglers", tree_of(current));
}

/// Evaluation and regular save. The last step's evaluation is the one after the training, unless
/// the best one is wanted.
void TrainingLoop::run_events(std::int64_t step) {
  bool const last = step == parts_.sampler.total_steps();
  bool is_best = false;
  if (parts_.evaluator && (!last || best_) && options_.evaluate.due(step)) {
    auto const result = evaluate(step);
    is_best = best_ && best_->evaluated(step, result);
  }
  if (options_.save.due(step) || (is_best && options_.save.interval == config::Interval::best))
    save(step, last ? SaveMode::wait : SaveMode::background, SaveContent::regular);
  parts_.log.end_step();
}

/// Saves a step, unless it is saved. It is the best saved one if no evaluation before it was
/// better, as in Trainer.
void TrainingLoop::save(std::int64_t step, SaveMode mode, SaveContent content) {
  auto& best = parts_.state.best;
  if (best.step == step) best.saved_step = step;
  if (!parts_.saves.covers(step)) parts_.saves.save(step, mode, content);
}

/// A stop in an evaluation saves that it is not complete.
EvaluationResult TrainingLoop::evaluate(std::int64_t step) {
  parts_.state.evaluation_interrupted = true;
  auto const result =
      options_.evaluation ? options_.evaluation(step) : parts_.evaluator->evaluate();
  parts_.state.evaluation_interrupted = false;
  parts_.log.evaluation(step, epochs_after(parts_.sampler, step), result);
  return result;
}

Outcome TrainingLoop::stop(std::int64_t step, int request) {
  parts_.log.clear_status_line();
  parts_.status.update(StatusFile::State::saving, step, parts_.sampler.total_steps());
  parts_.saves.finish();
  save(step, SaveMode::wait, SaveContent::resumable);
  std::string const stopped = concat("stopped by ", StopRequest::name(request), " after step ",
                                     step, " of ", parts_.sampler.total_steps());
  std::int64_t const saved = parts_.saves.last_saved_step();
  if (saved == step && makes_no_progress(step, request)) return no_progress(stopped);
  if (saved == step)
    return {ExitCode::stopped_early, stopped + "; run the same command again to resume"};
  return {ExitCode::io,
          concat(stopped, "; the checkpoint of this step could not be written, ",
                 saved > 0 ? concat("the newest one is of step ", saved) : "and there is no other",
                 " (", parts_.saves.last_failure(),
                 "); correct that, then run the same command again")};
}

/// A job that is requeued whenever it stops would never end.
bool TrainingLoop::makes_no_progress(std::int64_t step, int request) {
  if (request == SIGINT || request == SIGHUP) return false;  // signal of a terminal
  int const attempts = parts_.status.attempt_stops(step - parts_.state.first_step + 1);
  return comm::all_reduce_value(parts_.comm, std::int64_t{attempts}, comm::ReduceOp::max) >=
         most_short_attempts;
}

Outcome TrainingLoop::no_progress(std::string const& stopped) const {
  parts_.status.attempt_stops(2);  // the next attempts count again
  return {ExitCode::bad_config,
          concat(stopped, "; the last ", most_short_attempts,
                 " attempts were stopped after at most one step each, so that requeuing the job "
                 "makes hardly any progress; request a longer time limit (sbatch --time, "
                 "--time_limit), signal the job later (sbatch --signal), or make steps and saves "
                 "shorter, then run the same command again")};
}

Outcome TrainingLoop::stop_before_first_step(int request) {
  parts_.log.clear_status_line();
  if (makes_no_progress(0, request))
    return no_progress(concat("stopped by ", StopRequest::name(request), " before step 1 of ",
                              parts_.sampler.total_steps(), " was complete"));
  return {
      ExitCode::stopped_early,
      concat("stopped by ", StopRequest::name(request), " before step 1 of ",
             parts_.sampler.total_steps(),
             " was complete, so that no checkpoint exists; run the same command again to start")};
}

}  // namespace tessera::train
