// How a run goes on from a checkpoint, and the model it leaves behind.
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

optim::LossScalerState scaler_from(ConfigTree const& tree) {
  optim::LossScalerState state;
  state.scale = tree.at("scale").as_double();
  state.iteration = tree.at("iteration").as_int();
  state.last_overflow = tree.at("last_overflow").as_int();
  state.hysteresis = static_cast<int>(tree.at("hysteresis").as_int());
  return state;
}

}  // namespace

void Trainer::restore_checkpoint(fs::path const& directory) {
  auto const manifest = checkpoint::read_manifest(directory, comm_);
  checkpoint::restore(manifest, engine_->plan(), engine_->state(), comm_);
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
    auto request = save_request(sampler_->total_steps());
    request.directory = scratch;
    request.keep = 1;
    auto views = engine_->state();
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
