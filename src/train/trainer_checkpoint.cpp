// The trainer's checkpoints and the model it leaves behind.
#include <fmt/format.h>

#include "tessera/checkpoint/consolidate.hpp"
#include "tessera/checkpoint/directory.hpp"
#include "tessera/checkpoint/restore.hpp"
#include "tessera/checkpoint/save.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/trainer.hpp"
#include "tessera/train/version.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

ConfigTree to_tree(optim::LossScalerState const& state) {
  ConfigTree tree;
  tree.set("scale", state.scale).set("iteration", state.iteration).set("last_overflow", state.last_overflow).set("hysteresis", state.hysteresis);
  return tree;
}

optim::LossScalerState scaler_from(ConfigTree const& tree) {
  optim::LossScalerState state;
  state.scale = tree.at("scale").as_double();
  state.iteration = tree.at("iteration").as_int();
  state.last_overflow = tree.at("last_overflow").as_int();
  state.hysteresis = static_cast<int>(tree.at("hysteresis").as_int());
  return state;
}

checkpoint::StateViews views_of(zero::Engine& engine) { return engine.state(); }

}  // namespace

ConfigTree Trainer::trainer_state(std::int64_t step) const {
  ConfigTree state;
  state.set("step", step).set("applied_steps", applied_steps_).set("optimizer_steps", engine_->optimizer_steps());
  state.set("epoch", epoch_of(step)).set("seed", arguments_.seed).set("data_seed", arguments_.data_seed.value_or(arguments_.seed));
  state.set("train_batch_size", config_.train_batch_size).set("loss_scaler", to_tree(engine_->scaler_state()));
  return state;
}

/// A save that fails leaves the run and the older checkpoints as they are; too many in a row end it.
void Trainer::save_checkpoint(std::int64_t step) {
  status_.update(StatusFile::State::saving, step, sampler_->total_steps());
  checkpoint::SaveRequest request{.directory = arguments_.output_dir / "checkpoints", .step = step, .tokens = tokens_seen_,
                                  .samples = samples_seen_, .zero_stage = static_cast<int>(config_.stage), .run_id = "", .plan = engine_->plan(),
                                  .units = model_->units(), .keep = static_cast<int>(arguments_.save_total_limit.value_or(0)),
                                  .model_config = {}, .resolved_config = {}, .trainer_state = {}, .versions = {}};
  if (is_root()) {
    request.model_config = model_->config();
    request.resolved_config = describe(config_);
    request.trainer_state = trainer_state(step);
    request.versions = versions_tree();
  }
  auto const started = std::chrono::steady_clock::now();
  try {
    auto const saved = checkpoint::save(request, views_of(*engine_), comm_);
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - started;
    saving_ += took;
    deadline_.save_took(took);
    save_failures_ = 0;
    last_saved_step_ = step;
    if (!is_root()) return;
    status_.checkpoint_saved(saved.directory.filename().string());
    if (progress_) progress_->clear();
    log::info(fmt::format("saved {} ({}, {:.2f} s)", saved.directory.string(), human_bytes(saved.bytes), saved.seconds));
  } catch (IoError const& e) {
    ++save_failures_;
    if (save_failures_ > arguments_.max_save_failures) throw;
    if (is_root())
      log::error(concat(e.what(), "; training goes on, older checkpoints are as they were (failure ", save_failures_, " of at most ",
                        arguments_.max_save_failures, " in a row)"));
  }
}

void Trainer::restore_checkpoint(fs::path const& directory) {
  auto const manifest = checkpoint::read_manifest(directory, comm_);
  checkpoint::restore(manifest, engine_->plan(), views_of(*engine_), comm_);
  ConfigTree const& state = manifest.trainer_state;
  engine_->restored(state.at("optimizer_steps").as_int(), scaler_from(state.at("loss_scaler")));
  applied_steps_ = state.at("applied_steps").as_int();
  tokens_seen_ = manifest.tokens;
  samples_seen_ = manifest.samples;
  first_step_ = manifest.step + 1;
  last_saved_step_ = manifest.step;
  if (!is_root()) return;
  for (auto const& [key, now] : {std::pair<char const*, std::int64_t>{"seed", arguments_.seed},
                                 {"data_seed", arguments_.data_seed.value_or(arguments_.seed)},
                                 {"train_batch_size", config_.train_batch_size}})
    if (state.get_int(key, now) != now)
      log::warning(fmt::format("{} was {} when {} was saved and is {} now: the data order goes on differently", key, state.get_int(key, now),
                               directory.string(), now));
}

/// The files the tokenizer was read from, beside the model that was trained with it.
void Trainer::copy_tokenizer() const {
  if (!tokenizer_) return;
  for (auto const& file : tokenizer_->files()) {
    fs::path const copy = arguments_.output_dir / file.filename();
    std::error_code failed;
    if (fs::equivalent(file, copy, failed)) continue;
    fs::copy_file(file, copy, fs::copy_options::overwrite_existing, failed);
    TESSERA_VALIDATE(!failed, IoError, "cannot copy ", file.string(), " to ", copy.string(), ": ", failed.message());
  }
}

/// The trained model as a Hugging Face directory, streamed from the shards of the last checkpoint (or, without one for this step,
/// from shards written for this purpose and removed afterwards): no rank ever holds the model.
void Trainer::write_model() {
  bool const checkpointed = last_saved_step_ == sampler_->total_steps();
  fs::path shards = arguments_.output_dir / "checkpoints" / checkpoint::step_name(sampler_->total_steps());
  fs::path const scratch = arguments_.output_dir / ".model-shards";
  if (!checkpointed) {
    checkpoint::SaveRequest request{.directory = scratch, .step = sampler_->total_steps(), .tokens = tokens_seen_, .samples = samples_seen_,
                                    .zero_stage = static_cast<int>(config_.stage), .run_id = "", .plan = engine_->plan(), .units = model_->units(),
                                    .keep = 1, .model_config = model_->config(), .resolved_config = {}, .trainer_state = trainer_state(sampler_->total_steps()),
                                    .versions = versions_tree()};
    auto views = views_of(*engine_);
    std::erase_if(views, [](auto const& view) { return view.name != "fp32"; });
    shards = checkpoint::save(request, views, comm_).directory;
  }
  std::string failure;
  if (is_root()) {
    try {
      checkpoint::ConsolidateOptions options;
      options.checkpoint = shards;
      options.output = arguments_.output_dir;
      checkpoint::consolidate(options);
      copy_tokenizer();
      log::info("wrote the model to " + arguments_.output_dir.string() + " (config.json, safetensors, tokenizer)");
      std::error_code ignored;
      fs::remove_all(scratch, ignored);
    } catch (Error const& e) {
      failure = e.what();
    }
  }
  failure = comm::broadcast_bytes(comm_, failure, 0);
  TESSERA_VALIDATE(failure.empty(), IoError, "the model could not be written: ", failure);
}

}  // namespace tessera::train
