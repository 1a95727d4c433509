// The trainer's checkpoints: when a save waits, when it goes on in the background, and what is said
// about it.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/train/trainer.hpp"
#include "tessera/train/version.hpp"

namespace tessera::train {
namespace {

ConfigTree to_tree(optim::LossScalerState const& state) {
  ConfigTree tree;
  tree.set("scale", state.scale)
      .set("iteration", state.iteration)
      .set("last_overflow", state.last_overflow)
      .set("hysteresis", state.hysteresis);
  return tree;
}

std::string bytes_text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

}  // namespace

/// What going on needs, and what a person wants to know of it. Random numbers are functions of
/// seed, step and place (core/random.hpp), so that seeds and the step are their whole state.
ConfigTree Trainer::trainer_state(std::int64_t step) const {
  std::int64_t const data_seed = arguments_.data_seed.value_or(arguments_.seed);
  ConfigTree state, random, data, schedule;
  random.set("generator", "philox4x32-10").set("seed", arguments_.seed).set("step", step);
  auto const& order = sampler_->config();
  auto const place = step > 0 ? sampler_->position(step - 1) : data::StepPosition{};
  data.set("seed", data_seed)
      .set("order", order.order == data::SampleOrder::random ? "random" : "sequential")
      .set("samples", order.samples);
  data.set("epoch", place.epoch)
      .set("rounds_done", place.first_micro_step + place.micro_steps)
      .set("rounds_per_epoch", sampler_->micro_steps_per_epoch());
  schedule.set("applied_steps", applied_steps_)
      .set("total_steps", sampler_->total_steps())
      .set("next_learning_rate", schedule_(applied_steps_ + 1));
  state.set("step", step)
      .set("applied_steps", applied_steps_)
      .set("optimizer_steps", engine_->optimizer_steps());
  state.set("epoch", epoch_of(step))
      .set("seed", arguments_.seed)
      .set("data_seed", data_seed)
      .set("train_batch_size", config_.train_batch_size);
  state.set("loss_scaler", to_tree(engine_->scaler_state()))
      .set("random", random)
      .set("data", data)
      .set("schedule", schedule);
  if (!resumed_from_.is_null()) state.set("resumed_from", resumed_from_);
  return state;
}

/// Every option with its value and origin, what was made of it, and the DeepSpeed configuration as
/// written.
ConfigTree Trainer::resolved_config() const {
  auto const& info = session_.info();
  ConfigTree machine;
  machine.set("ranks", info.world_size)
      .set("nodes", info.node_count)
      .set("threads", memory::Runtime::threads());
  machine.set("device", memory::Runtime::description());
  return ConfigTree()
      .set("arguments", config::describe(arguments_))
      .set("engine", config::describe(config_))
      .set("deepspeed", arguments_.deepspeed)
      .set("machine", machine);
}

checkpoint::SaveRequest Trainer::save_request(std::int64_t step, SaveContent content) const {
  checkpoint::SaveRequest request{.directory = arguments_.output_dir / "checkpoints",
                                  .step = step,
                                  .tokens = tokens_seen_,
                                  .samples = samples_seen_,
                                  .zero_stage = static_cast<int>(config_.stage),
                                  .run_id = run_id_,
                                  .plan = engine_->plan(),
                                  .units = model_->units(),
                                  .keep = static_cast<int>(arguments_.save_total_limit.value_or(0)),
                                  .model_config = {},
                                  .resolved_config = {},
                                  .trainer_state = {},
                                  .versions = {}};
  int const per_file = arguments_.checkpoint_ranks_per_file.count;
  request.file_starts = per_file == 0 ? checkpoint::starts_by_host(session_.hosts())
                                      : checkpoint::starts_by_count(comm_.size(), per_file);
  if (arguments_.save_only_model || config_.gather_16bit_weights) {
    auto& files = request.model_files.emplace();
    files.dtype = config_.dtype;
    files.alone = arguments_.save_only_model && content == SaveContent::regular;
    if (tokenizer_) files.others = tokenizer_->files();
  }
  if (!is_root()) return request;
  request.model_config = model_->config();
  request.resolved_config = resolved_config();
  request.trainer_state = trainer_state(step);
  request.versions = versions_tree();
  return request;
}

/// Decided at the first save, when activations and buffers have their memory: the copies of all
/// ranks of a node may take half of what is left then. State on a device is copied to the host for
/// any save, so that nothing more is needed. Collective.
bool Trainer::saves_in_background() {
  if (background_saves_) return *background_saves_;
  bool fits = arguments_.async_save != config::AsyncSave::off;
  if (fits && !engine_->state_is_snapshot()) {
    std::size_t const bytes = checkpoint::Saver::snapshot_bytes(engine_->plan(), checkpoint_states);
    auto const left = memory::available_memory();
    auto const ranks = static_cast<std::size_t>(session_.info().local_size);
    fits = arguments_.async_save == config::AsyncSave::on || bytes <= left.bytes / ranks / 2;
    std::string const room = fmt::format(
        "a copy of the state takes {} on each of {} {} of host {}, where {} are left ({})",
        bytes_text(bytes), ranks, plural(session_.info().local_size, "rank"), session_.info().host,
        bytes_text(left.bytes), left.limited_by);
    log::debug(room);
    bool const all_fit = comm::agree(comm_, fits);
    if (!fits || (is_root() && !all_fit))
      log::warning("checkpoints are written while training waits: " +
                   (fits ? "another host has no room for copies of the state" : room));
    fits = all_fit;
  }
  background_saves_ = fits;
  return fits;
}

/// A save that fails leaves the run and the older checkpoints as they are; too many in a row end
/// it.
void Trainer::survive(std::int64_t step, std::function<void()> const& part) {
  auto const started = std::chrono::steady_clock::now();
  try {
    part();
  } catch (IoError const& e) {
    ++save_failures_;
    status_.set("save", ConfigTree::object()
                            .set("state", "failed")
                            .set("step", step)
                            .set("failures_in_a_row", save_failures_)
                            .set("reason", e.what()));
    if (save_failures_ > arguments_.max_save_failures) throw;
    if (progress_) progress_->clear();
    if (is_root())
      log::error(concat("the save of step ", step, " failed: ", e.what(),
                        "; training goes on, older checkpoints are as they were (failure ",
                        save_failures_, " of at most ", arguments_.max_save_failures,
                        " in a row)"));
  }
  saving_ += std::chrono::steady_clock::now() - started;
}

void Trainer::save_checkpoint(std::int64_t step, SaveMode mode, SaveContent content) {
  if (saver_->in_flight()) {
    if (progress_) progress_->clear();
    if (is_root())
      log::info(
          fmt::format("the save of step {} waits until that of step {} is written; --save_steps is "
                      "small for this disk",
                      step, saver_->step()));
    finish_save();
  }
  bool const background = mode == SaveMode::go_on && saves_in_background();
  if (!background) status_.update(StatusFile::State::saving, step, sampler_->total_steps());
  status_.set(
      "save",
      ConfigTree::object().set("state", "writing").set("step", step).set("background", background));
  survive(step, [&] {
    auto const source = background && !engine_->state_is_snapshot()
                            ? checkpoint::Saver::Source::snapshot
                            : checkpoint::Saver::Source::in_place;
    auto const request = save_request(step, content);
    saves_model_alone_ = request.model_files && request.model_files->alone;
    auto views = engine_->state();
    if (saves_model_alone_)
      std::erase_if(views, [](auto const& view) { return view.name != "fp32"; });
    saver_->begin(request, views, source);
    if (!background) checkpoint_done(saver_->finish(), step);
  });
}

void Trainer::advance_save() {
  if (!saver_->in_flight()) return;
  std::int64_t const step = saver_->step();
  survive(step, [&] {
    if (auto const saved = saver_->advance()) checkpoint_done(*saved, step);
  });
}

void Trainer::finish_save() {
  if (!saver_->in_flight()) return;
  std::int64_t const step = saver_->step();
  status_.update(StatusFile::State::saving, step, sampler_->total_steps());
  survive(step, [&] { checkpoint_done(saver_->finish(), step); });
}

void Trainer::checkpoint_done(checkpoint::SavedCheckpoint const& saved, std::int64_t step) {
  save_failures_ = 0;
  if (!saves_model_alone_) last_saved_step_ = step;
  deadline_.save_took(std::chrono::duration<double>(saved.work_seconds));
  if (!is_root()) return;
  std::string const name = saved.directory.filename().string();
  ConfigTree times;
  times.set("step", step)
      .set("seconds", saved.seconds)
      .set("stall_seconds", saved.stall_seconds)
      .set("bytes", saved.bytes);
  status_.set("save", ConfigTree(times).set("state", "done"));
  if (!saves_model_alone_) status_.checkpoint_saved(name);
  if (metrics_)
    metrics_->write(ConfigTree()
                        .set("step", step)
                        .set("checkpoint", name)
                        .set("save_seconds", saved.seconds)
                        .set("save_stall_seconds", saved.stall_seconds)
                        .set("save_bytes", saved.bytes));
  if (progress_) progress_->clear();
  log::info(fmt::format("saved {}{} ({}, {:.2f} s, training stood still for {:.2f} s)",
                        saves_model_alone_ ? "the model alone in " : "", saved.directory.string(),
                        human_bytes(saved.bytes), saved.seconds, saved.stall_seconds));
}

}  // namespace tessera::train
