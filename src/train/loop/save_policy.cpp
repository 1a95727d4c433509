#include "tessera/train/loop/save_policy.hpp"

#include <fmt/format.h>

#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/train/loop/model_export.hpp"
#include "tessera/train/report/version.hpp"
#include "tessera/train/setup/training_setup.hpp"
#include "tessera/zero/layout/saved_states.hpp"

namespace tessera::train {
namespace {

/// Master weights, optimizer states and errors.
checkpoint::StateLayers layers_of(zero::Engine const& engine) {
  return checkpoint::layers_of(zero::saved_states(engine.config()));
}

std::string bytes_text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

/// The views of the weights only.
checkpoint::StateViews weights_of(checkpoint::StateViews views) {
  std::erase_if(views, [](auto const& view) { return view.name != optim::master_weights_name; });
  return views;
}

}  // namespace

SavePolicy::SavePolicy(Options const& options, Parts const& parts, MakeRequest make_request)
    : options_(options),
      parts_(parts),
      make_request_(std::move(make_request)),
      saver_(parts.comm, options.copy_threads) {
  if (options_.async == config::AsyncSave::on && !parts_.engine.state_is_snapshot())
    saver_.reserve(parts_.engine.plan(), layers_of(parts_.engine));  // not only at the first save
  if (!options_.memory) return;
  checkpoint::require_memory(
      *options_.memory,
      checkpoint::BackgroundSaver::snapshot_bytes(parts_.engine.plan(), layers_of(parts_.engine)),
      parts_.engine.state_is_snapshot() ? 0 : 1, parts_.comm);
  memory_schedule_.emplace(options_.memory_steps, options_.first_step);
}

/// Half of the memory that is left is enough for the snapshots of all ranks of this node.
bool SavePolicy::snapshot_fits() const {
  std::size_t const bytes =
      checkpoint::BackgroundSaver::snapshot_bytes(parts_.engine.plan(), layers_of(parts_.engine));
  auto const left = memory::available_memory();
  auto const ranks = static_cast<std::size_t>(options_.ranks_on_node);
  bool const fits = options_.async == config::AsyncSave::on || bytes <= left.bytes / ranks / 2;
  std::string const room = fmt::format(
      "a snapshot of the state needs {} on each of {} {} of host {}, which has {} left ({})",
      bytes_text(bytes), ranks, plural(options_.ranks_on_node, "rank"), host_name(),
      bytes_text(left.bytes), left.limited_by);
  log::debug(room);
  bool const root = parts_.comm.rank() == 0;
  bool const all_fit = comm::agree(parts_.comm, fits);
  if (!fits || (root && !all_fit))
    log::warning("checkpoints will block training: " +
                 (fits ? "another host has too little memory for snapshots" : room));
  return all_fit;
}

/// States are on a drive because memory does not hold them, nor a snapshot of them.
bool SavePolicy::is_worth_a_snapshot() const {
  bool const is_swapped = parts_.engine.memory().swap.has_value();
  if (!is_swapped || options_.async == config::AsyncSave::on) return true;
  parts_.log.info(
      "checkpoints block training: the states are on a drive; --async_save on copies "
      "them to memory instead");
  return false;
}

/// Decided at the first save, when activations and buffers have their memory. State on a device is
/// copied to the host for any save, so a background save needs no more. Collective.
bool SavePolicy::saves_in_background() {
  if (!background_)
    background_ = options_.async != config::AsyncSave::off && is_worth_a_snapshot() &&
                  (parts_.engine.state_is_snapshot() || snapshot_fits());
  return *background_;
}

/// The checkpoints on disk remain, so the run continues.
void SavePolicy::memory_save_failed(std::int64_t step, Error const& error) {
  parts_.log.error(concat("saving step ", step, " to memory failed: ", error.what(),
                          "; training continues, and the next one is due in ",
                          memory_schedule_->interval(), " steps"));
}

/// A save that fails leaves the run and the older checkpoints unchanged; too many in a row end the
/// run. A state that is not finite ends it immediately.
void SavePolicy::count_failures(std::int64_t step, std::function<void()> const& phase) {
  auto const started = std::chrono::steady_clock::now();
  auto const failed = [&](Error const& e) {
    ++failures_;
    last_failure_ = e.what();
    parts_.status.set("save", ConfigTree::object()
                                  .set("state", "failed")
                                  .set("step", step)
                                  .set("failures_in_a_row", failures_)
                                  .set("reason", e.what()));
  };
  try {
    phase();
  } catch (ConfigError const& e) {  // the state is not finite
    failed(e);
    throw;
  } catch (DataError const& e) {  // a copy in memory that was written or received damaged
    if (!flight_.in_memory) throw;
    memory_save_failed(step, e);
  } catch (IoError const& e) {
    if (flight_.in_memory) {
      memory_save_failed(step, e);
    } else {
      failed(e);
      if (failures_ > options_.max_failures) throw;
      parts_.log.error(concat("saving step ", step, " failed: ", e.what(),
                              "; training continues, older checkpoints are unchanged (failure ",
                              failures_, " of at most ", options_.max_failures, " in a row)"));
    }
  }
  blocked_ += std::chrono::steady_clock::now() - started;
}

void SavePolicy::save(std::int64_t step, SaveMode mode, SaveContent content) {
  if (saver_.in_flight()) {
    if (!flight_.in_memory)
      parts_.log.info(
          fmt::format("saving step {} waits for the save of step {} to finish; a larger "
                      "--save_steps avoids this",
                      step, saver_.step()));
    finish();
  }
  flight_ = {};
  bool const background = mode == SaveMode::background && saves_in_background();
  if (!background) parts_.status.update(StatusFile::State::saving, step, options_.total_steps);
  parts_.status.set(
      "save",
      ConfigTree::object().set("state", "writing").set("step", step).set("background", background));
  // not a failure of this save: states that a drive has lost end the run
  auto const states = parts_.engine.state();
  if (options_.check) options_.check(step, states);
  count_failures(step, [&] {
    auto const source = background && !parts_.engine.state_is_snapshot()
                            ? checkpoint::BackgroundSaver::Source::snapshot
                            : checkpoint::BackgroundSaver::Source::in_place;
    auto const request = make_request_(step, content);
    flight_.model_only = request.model_files && request.model_files->only_model;
    flight_.made_progress = request.skipped_in_a_row == 0;
    saver_.begin(request, flight_.model_only ? weights_of(states) : states, source);
    if (!background) completed(saver_.finish(), step);
  });
}

void SavePolicy::save_to_memory(std::int64_t step, double step_seconds) {
  if (!memory_schedule_) return;
  memory_schedule_->step_took(step_seconds);
  if (saver_.in_flight() || !memory_schedule_->due(step)) return;
  memory_schedule_->begins(step);
  flight_ = {.in_memory = true};
  auto const states = parts_.engine.state();
  if (options_.check) options_.check(step, states);
  count_failures(step, [&] {
    auto const source = parts_.engine.state_is_snapshot()
                            ? checkpoint::BackgroundSaver::Source::in_place
                            : checkpoint::BackgroundSaver::Source::snapshot;
    saver_.begin_in_memory(*options_.memory, make_request_(step, SaveContent::resumable), states,
                           source);
  });
}

void SavePolicy::advance() {
  if (!saver_.in_flight()) return;
  std::int64_t const step = saver_.step();
  count_failures(step, [&] {
    if (auto const saved = saver_.advance()) completed(*saved, step);
  });
}

void SavePolicy::finish() {
  if (!saver_.in_flight()) return;
  std::int64_t const step = saver_.step();
  parts_.status.update(StatusFile::State::saving, step, options_.total_steps);
  count_failures(step, [&] { completed(saver_.finish(), step); });
}

/// Work of the host takes cores from training, so it counts in full; next to a device only the
/// time that training has waited.
void SavePolicy::completed_in_memory(checkpoint::SavedCheckpoint const& saved, std::int64_t step) {
  std::int64_t const before = memory_schedule_->interval();
  memory_schedule_->cost(comm::all_reduce_value(
      parts_.comm, parts_.engine.state_is_snapshot() ? saved.stall_seconds : saved.work_seconds,
      comm::ReduceOp::max));
  std::int64_t const interval = memory_schedule_->interval();
  parts_.status.set("memory_save", ConfigTree::object()
                                       .set("step", step)
                                       .set("interval", interval)
                                       .set("seconds", saved.seconds)
                                       .set("stall_seconds", saved.stall_seconds)
                                       .set("bytes", saved.bytes));
  if (interval != before)
    parts_.log.info(fmt::format(
        "checkpoints in memory every {} (--memory_save_steps auto): one took {:.3g} s and blocked "
        "training for {:.3g} s",
        counted(interval, "step"), saved.seconds, saved.stall_seconds));
}

void SavePolicy::completed(checkpoint::SavedCheckpoint const& saved, std::int64_t step) {
  if (flight_.in_memory) return completed_in_memory(saved, step);
  failures_ = 0;
  last_failure_.clear();
  if (!flight_.model_only) last_saved_ = step;
  if (!flight_.model_only && flight_.made_progress) last_progress_ = step;
  parts_.deadline.save_took(std::chrono::duration<double>(saved.work_seconds));
  parts_.status.set("save", ConfigTree::object()
                                .set("step", step)
                                .set("seconds", saved.seconds)
                                .set("stall_seconds", saved.stall_seconds)
                                .set("bytes", saved.bytes)
                                .set("state", "done"));
  for (auto const& slow : saved.slow_writers) {
    auto const rank = static_cast<std::size_t>(slow.rank);
    parts_.log.warning(fmt::format(
        "rank {}{} took {:.1f} s to write its part of the checkpoint, and the others {:.1f} s on "
        "the median: its disk or file system is slow",
        slow.rank, rank < options_.hosts.size() ? " on node " + options_.hosts[rank] : "",
        slow.seconds, slow.others));
  }
  if (!flight_.model_only) parts_.status.checkpoint_saved(saved.directory.filename().string());
  parts_.log.checkpoint(
      step, saved,
      flight_.model_only ? RunLog::CheckpointKind::model_only : RunLog::CheckpointKind::resumable);
}

checkpoint::SaveRequest save_request(JobContext const& job, TrainingRun const& run,
                                     std::int64_t step, SaveContent content) {
  auto const& arguments = job.arguments;
  checkpoint::SaveRequest request{
      .directory = arguments.output_dir / "checkpoints",
      .step = step,
      .tokens = run.state.tokens,
      .samples = run.state.samples,
      .zero_stage = static_cast<int>(run.config.stage),
      .run_id = run.state.run_id,
      .plan = run.engine->plan(),
      .units = run.trained.units,
      .keep = static_cast<int>(arguments.save_total_limit.value_or(0)),
      .protected_step = arguments.load_best_model_at_end ? run.state.best.saved_step : -1,
      .skipped_in_a_row = run.state.skipped_in_a_row,
      .model_config = {},
      .resolved_config = {},
      .trainer_state = {},
      .versions = {}};
  int const per_file = arguments.checkpoint_ranks_per_file.count;
  int const writers = request.plan.ranks();
  auto hosts = job.session.hosts();
  hosts.resize(static_cast<std::size_t>(writers));
  request.file_starts = per_file == 0 ? checkpoint::starts_by_host(hosts)
                                      : checkpoint::starts_by_count(writers, per_file);
  if (arguments.save_only_model || run.config.gather_16bit_weights) {
    auto& files = request.model_files.emplace();
    files.dtype = run.config.dtype;
    files.only_model = arguments.save_only_model && content == SaveContent::regular;
    if (job.is_root()) files.extra_files = model_companions(run);
  }
  if (!job.is_root()) return request;
  request.model_config = run.model->config();
  request.resolved_config = resolved_config(job, run);
  request.trainer_state =
      trainer_state({arguments,
                     run.config,
                     *run.sampler,
                     run.schedule,
                     run.state,
                     {run.engine->optimizer_steps(), run.engine->scaler_state()},
                     run.data.identity},
                    step);
  request.versions = library_versions();
  request.frozen = run.frozen;
  return request;
}

}  // namespace tessera::train
