// How a run goes on from a checkpoint, and the model it leaves behind.
#include <fmt/format.h>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
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

/// Weights and state of the first step. Damage that only reading the data shows sends a run that
/// may choose to an older checkpoint.
void Trainer::start_from(StartingPoint const& start) {
  if (start.checkpoint.empty()) {
    start_weights();
    return name_run(nullptr);
  }
  std::vector<std::int64_t> refused;
  for (StartingPoint at = start;;) {
    auto const manifest = checkpoint::read_manifest(at.checkpoint, comm_);
    checkpoint::check_model(manifest, engine_->plan());
    try {
      restore(manifest);
      if (!at.note.empty() && is_root()) log::info(at.note);
      return;
    } catch (DataError const& e) {
      if (!at.may_fall_back) throw;
      refused.push_back(manifest.step);
      StartingPoint const next = fall_back(arguments_, refused, comm_);
      if (next.checkpoint.empty())
        throw DataError(concat(e.what(), "; there is no other whole checkpoint in ",
                               arguments_.output_dir.string()));
      if (is_root())
        log::warning(concat(at.checkpoint.string(), " is damaged (", e.what(),
                            "); an older checkpoint is tried"));
      at = next;
    }
  }
}

/// A run keeps its name as long as it goes on in its directory.
void Trainer::name_run(checkpoint::Manifest const* resumed) {
  if (is_root()) {
    bool const own = resumed && fs::weakly_canonical(resumed->directory).parent_path() ==
                                    fs::weakly_canonical(arguments_.output_dir / "checkpoints");
    bool const named = own && !resumed->run_id.empty() && resumed->run_id != "imported";
    run_id_ = named ? resumed->run_id : new_run_id();
    if (resumed)
      resumed_from_.set("run_id", resumed->run_id)
          .set("step", resumed->step)
          .set("checkpoint", resumed->directory.string());
    status_.set("run_id", run_id_);
    if (resumed) status_.set("resumed_from", resumed_from_);
  }
  run_id_ = comm::broadcast_bytes(comm_, run_id_, 0);
}

void Trainer::restore(checkpoint::Manifest const& manifest) {
  checkpoint::restore(manifest, engine_->plan(), engine_->state(), comm_);
  name_run(&manifest);
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
      log::warning(fmt::format(
          "{} was {} when {} was saved and is {} now: the data order goes on differently", key,
          state.get_int(key, now), manifest.directory.string(), now));
}

/// The files the tokenizer was read from, beside the model that was trained with it.
void Trainer::copy_tokenizer() const {
  if (!tokenizer_) return;
  for (auto const& file : tokenizer_->files()) {
    fs::path const copy = arguments_.output_dir / file.filename();
    std::error_code failed;
    if (fs::equivalent(file, copy, failed)) continue;
    fs::copy_file(file, copy, fs::copy_options::overwrite_existing, failed);
    TESSERA_VALIDATE(!failed, IoError, "cannot copy ", file.string(), " to ", copy.string(), ": ",
                     failed.message());
  }
}

/// The trained model as a Hugging Face directory, streamed from the shards of the last checkpoint
/// (or, without one for this step, from shards written for this purpose and removed afterwards): no
/// rank ever holds the model.
void Trainer::write_model() {
  bool const checkpointed = last_saved_step_ == sampler_->total_steps();
  fs::path shards =
      arguments_.output_dir / "checkpoints" / checkpoint::step_name(sampler_->total_steps());
  fs::path const scratch = arguments_.output_dir / ".model-shards";
  if (!checkpointed) {
    auto request = save_request(sampler_->total_steps(), SaveContent::whole);
    request.model_files.reset();
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
      if (config_.gather_16bit_weights) options.dtype = config_.dtype;
      checkpoint::consolidate(options);
      copy_tokenizer();
      log::info("wrote the model to " + arguments_.output_dir.string() +
                " (config.json, safetensors, tokenizer)");
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
