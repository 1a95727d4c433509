#include "tessera/train/setup/training_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/config/learning_rate.hpp"
#include "tessera/config/node_groups.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/topology/rank_groups.hpp"
#include "tessera/train/report/used_paths.hpp"
#include "tessera/train/setup/activation_memory.hpp"
#include "tessera/train/setup/adapter.hpp"
#include "tessera/train/setup/device_choice.hpp"
#include "tessera/train/setup/engine_config.hpp"
#include "tessera/train/setup/memory_plan.hpp"
#include "tessera/train/setup/node_memory.hpp"
#include "tessera/train/setup/training_data.hpp"
#include "tessera/zero/layout/saved_states.hpp"
#include "tessera/zero/weights/base_values.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

/// Master weights that no optimizer of the checkpoint has updated, such as an imported model: any
/// optimizer may start from them, with its states at zero.
bool has_only_weights(checkpoint::Manifest const& manifest) {
  return manifest.state_names() == std::vector<std::string>{optim::master_weights_name} &&
         manifest.trainer_state.get_int("optimizer_steps", 0) == 0;
}

/// Errors of quantized gradients belong to no optimizer: a run without them starts them at zero.
std::vector<std::string> optimizer_states(checkpoint::Manifest const& manifest) {
  auto names = manifest.state_names();
  std::erase(names, zero::gradient_error_name);
  return names;
}

/// A checkpoint with optimizer states continues only with the optimizer that keeps them.
void check_optimizer(checkpoint::Manifest const& manifest, optim::OptimizerSpec const& optimizer) {
  auto const wanted = optimizer.state_names();
  TESSERA_VALIDATE(optimizer_states(manifest) == wanted || has_only_weights(manifest), ConfigError,
                   manifest.directory.string(), " has the states ", join(manifest.state_names()),
                   ", but optimizer ", optimizer.algorithm, " of this run keeps ", join(wanted),
                   "; resume with the checkpoint's optimizer, or start a new run from its weights "
                   "with --model_name_or_path");
}

/// Reads the states that the checkpoint has into @p states and zeroes the others.
checkpoint::RestoreReport read_states(checkpoint::Manifest const& manifest, zero::Engine& engine,
                                      comm::Collectives& comm) {
  auto const& plan = engine.plan();
  auto states = engine.state();
  auto const saved = manifest.state_names();
  auto const is_missing = [&](zero::StateView const& state) {
    return std::find(saved.begin(), saved.end(), state.name) == saved.end();
  };
  for (auto const& state : states) {
    if (!is_missing(state)) continue;
    auto const layout = plan.of_extent(state.extent);
    for (zero::UnitIndex u = zero::first_unit; u < layout.end_unit(); ++u)
      std::fill_n(state.unit_shards[position(u)], layout.unit(u).shard_numel, 0.0f);
  }
  std::erase_if(states, is_missing);
  return checkpoint::restore(manifest, plan, states, comm);
}

std::unique_ptr<memory::Queue> compute_queue(config::TrainingArguments const& arguments) {
  if (memory::Runtime::device() < 0) return memory::make_inline_queue("compute");
  auto const graph_mode =
      arguments.device_graphs ? memory::GraphMode::capture : memory::GraphMode::off;
  return memory::make_stream_queue("compute", memory::StreamPriority::normal, graph_mode);
}

/// Counts the rows of @p rows samples and their longest, and says whether they are examples.
void plan_rows(PlannedPasses& passes, std::int64_t& rows, std::int64_t& longest,
               data::TokenSequences const& sequences) {
  auto const& layout = sequences.layout();
  rows *= layout.per_sample;
  longest = ceil_divide(sequences.length(), layout.multiple_of) * layout.multiple_of;
  passes.flat = layout.flat;
  passes.measures_tokens = sequences.holds_examples();
}

/// "fp32 weights", and the dtype of autocast.
std::string precision_text(config::ResolvedConfig const& config) {
  std::string const base = config.load_in_8bit                ? "int8"
                           : config.bnb_4bit_use_double_quant ? "nf4 with double quantization"
                                                              : "nf4";
  bool const autocast = config.product_dtype != config.dtype;
  return concat(name_of(config.dtype), " weights",
                autocast ? concat(", ", name_of(config.product_dtype), " products") : "",
                config.quantizes_base() ? concat(", frozen matrices in ", base) : "",
                config.fp8 ? ", fp8 products in blocks" : "",
                config.master_dtype == Dtype::fp32 ? "" : ", which are the master weights");
}

}  // namespace

config::ResolvedConfig const& TrainingSetup::resolve() {
  run_.source = find_model(job_.arguments, job_.comm);
  run_.config =
      config::resolve(job_.arguments, job_.comm.size(), model::hidden_size(run_.source.config));
  config::place_on_nodes(run_.config, topology::uniform_node_size(job_.session.nodes()));
  run_.mesh = std::make_unique<comm::Mesh>(job_.comm, config::mesh_of(run_.config));
  if (makers_.optimizer) run_.config.optimizer = makers_.optimizer(run_.config);
  return run_.config;
}

TrainingRun TrainingSetup::build() {
  auto const start = open_directory();
  run_.compute = compute_queue(job_.arguments);
  make_model();
  run_.data = makers_.data ? makers_.data(run_.source, *run_.model)
                           : load_training_data(job_.arguments, run_.source, *run_.model,
                                                job_.session, job_.comm);
  auto resolved = run_.config;
  bool const trains = job_.arguments.do_train;
  if (!trains) resolved.offload.optimizer = config::OffloadDevice::none;
  auto config = engine_config(resolved, run_.source.lora, unit_messages());
  config.hash_states = job_.arguments.verify_steps > 0 && job_.comm.size() > 1;
  if (trains) check_space(run_.config, memory::memory_space_of(*run_.compute));
  auto const& units = run_.model->units();
  check_swap_room(config, units, job_.session.info(), job_.comm,
                  {trains ? memory::Pass::training : memory::Pass::evaluation,
                   memory::memory_space_of(*run_.compute)});
  if (trains) {
    auto engine = zero::make_engine(config, units, *run_.mesh, *run_.compute);
    run_.engine = engine.get();
    run_.weights = std::move(engine);
  } else {
    run_.weights = zero::make_weights(config, units, *run_.mesh, *run_.compute);
  }
  find_batch_size();
  plan_steps();
  reserve_memory_of_passes();
  log_summary(start);
  load_weights(start);
  run_.starts_over = start.checkpoint.empty() && job_.arguments.overwrite_output_dir;
  return std::move(run_);
}

void TrainingSetup::make_model() {
  auto options = model_options(run_.config);
  options.lora = run_.source.lora;
  options.frozen_parameters = job_.arguments.frozen_parameters;
  options.documents =
      find_document_options(job_.arguments, run_.source.tokenizer_directory, job_.comm);
  run_.model = makers_.model ? makers_.model(run_.source.config, options)
                             : model::make_model(run_.source.config, options);
  run_.source.changes = run_.model->parameter_changes();
  run_.trained = zero::trained_parameters(run_.model->units());
  if (options.lora && job_.is_root())
    for (auto const& target : unmatched_targets(*options.lora, run_.model->units()))
      log::warning(concat("LoRA's target module ", target, " names no linear layer of the model"));
  auto const& a = job_.arguments;
  TESSERA_VALIDATE(
      options.lora || options.frozen_parameters.empty() ||
          !(a.save_only_model || run_.config.gather_16bit_weights),
      ConfigError, "--frozen_parameters with ",
      a.save_only_model ? "--save_only_model" : "stage3_gather_16bit_weights_on_model_save",
      ": a checkpoint has only the parameters that train, so that its model would be incomplete; "
      "leave it out: the model at the end is complete");
}

/// Takes the lock of the output directory and decides what to start from.
StartingPoint TrainingSetup::open_directory() {
  memory_ = node_memory(job_.arguments, job_.session, topology::process_environment());
  disk_ = prepare_run_directory(job_.arguments, job_.comm, run_.lock);
  job_.status.update(StatusFile::State::starting, 0, 0);
  if (run_.lock && !run_.lock->replaced().empty())
    log::info("the previous job in " + job_.arguments.output_dir.string() +
              " is no longer running: " + run_.lock->replaced());
  if (job_.is_root() && run_.config.reporting.dump_state)
    log::info("resolved configuration:\n" + config::describe(run_.config).dump(2));
  if (job_.is_root()) {
    auto const& config = std::as_const(run_.config);
    for (auto const* notes : {&job_.arguments.hints, &config.notes, &config.notes_on_cpus})
      if (notes != &config.notes_on_cpus || memory::Runtime::device() < 0)
        for (auto const& note : *notes) log::info("note: " + note);
  }
  return newest();
}

/// --auto_find_batch_size: a smaller micro-batch, as Trainer finds it; the batch of a step shrinks
/// with it.
void TrainingSetup::find_batch_size() {
  if (!job_.arguments.do_train || !job_.arguments.auto_find_batch_size) return;
  auto& config = run_.config;
  PlannedPasses passes;
  passes.ranks_on_node = job_.session.info().local_size;
  passes.recompute = job_.arguments.recompute;
  passes.cpu_checkpointing = config.cpu_checkpointing;
  passes.train_rows = std::min(config.micro_batch_size, run_.data.train->count());
  plan_rows(passes, passes.train_rows, passes.train_sequence, *run_.data.train);
  std::int64_t const rows = fitting_train_rows(*run_.model, *run_.compute, job_.comm, passes);
  if (rows == passes.train_rows) return;
  if (job_.is_root())
    log::warning(fmt::format(
        "--auto_find_batch_size: {} sequences per rank and micro-step do not fit into memory; {} "
        "do, so that a step has {} sequences instead of {}",
        config.micro_batch_size, rows, rows * config.accumulation_steps * run_.mesh->data_size(),
        config.train_batch_size));
  config.micro_batch_size = rows;
  config.train_batch_size = rows * config.accumulation_steps * run_.mesh->data_size();
}

void TrainingSetup::plan_steps() {
  if (!job_.arguments.do_train) return;
  run_.sampler.emplace(sampler_config(job_.arguments, run_.config, run_.data.train->count(),
                                      run_.mesh->data_size()));
  std::int64_t const steps = run_.sampler->total_steps();
  run_.schedule = makers_.schedule ? makers_.schedule(run_.config, steps)
                                   : config::learning_rate_schedule(run_.config, steps);
}

void TrainingSetup::reserve_memory_of_passes() {
  PlannedPasses passes;
  passes.ranks_on_node = job_.session.info().local_size;
  passes.recompute = job_.arguments.recompute;
  passes.cpu_checkpointing = run_.config.cpu_checkpointing;
  if (run_.sampler) {
    passes.train_rows = std::min(run_.config.micro_batch_size, run_.data.train->count());
    plan_rows(passes, passes.train_rows, passes.train_sequence, *run_.data.train);
  }
  for (auto const* data : {&run_.data.evaluation, &run_.data.test}) {
    if (!*data) continue;
    std::int64_t const ranks = run_.mesh->data_size(), count = (*data)->count();
    std::int64_t rows =
        std::min(job_.arguments.per_device_eval_batch_size, ceil_divide(count, ranks));
    plan_rows(passes, rows, passes.evaluation_sequence, **data);
    passes.evaluation_rows = std::max(passes.evaluation_rows, rows);
  }
  activation_bytes_ = reserve_activations(*run_.model, *run_.compute, job_.comm, passes);
  host_checkpoint_bytes_ = host_checkpoint_bytes(*run_.model, *run_.compute, passes);
}

namespace {

/// " in groups of 4 ranks", " with secondary weights in groups of 4 ranks".
std::string groups_text(config::ResolvedConfig const& config, int ranks) {
  if (config.shard_group_size > 0 && config.shard_group_size < ranks)
    return " in groups of " + counted(config.shard_group_size, "rank");
  if (config.secondary_group_size > 1)
    return " with secondary weights in groups of " + counted(config.secondary_group_size, "rank");
  return "";
}

}  // namespace

void TrainingSetup::log_summary(StartingPoint const& start) const {
  if (!job_.is_root()) return;
  fs::path const& from =
      start.checkpoint.empty() ? run_.source.weights_directory : start.checkpoint;
  auto const& info = job_.session.info();
  auto const& config = run_.config;
  std::int64_t const trained = run_.weights->plan().parameter_count(),
                     frozen = run_.weights->frozen_plan().parameter_count();
  log::info(fmt::format(
      "{} {}: {} parameters{}, {}; ZeRO stage {}{} on {} {} ({} {}), {}", run_.model->family(),
      from.empty() ? "from random weights" : "from " + from.string(), with_commas(trained + frozen),
      frozen == 0 ? ""
                  : fmt::format(", of which {} ({:.4f} %) train", with_commas(trained),
                                100.0 * static_cast<double>(trained) /
                                    static_cast<double>(trained + frozen)),
      precision_text(config), config.stage, groups_text(config, info.world_size), info.world_size,
      plural(info.world_size, "rank"), info.node_count, plural(info.node_count, "node"),
      memory::Runtime::description()));
  if (run_.sampler)
    log::info(fmt::format("{} of {}{} tokens, {} per step ({} x {} x {}), {}",
                          counted(run_.data.train->count(), "sample"),
                          run_.data.train->holds_examples() ? "up to " : "",
                          run_.data.train->length(), config.train_batch_size,
                          config.micro_batch_size, config.accumulation_steps,
                          run_.mesh->data_size(), counted(run_.sampler->total_steps(), "step")));
  if (config.fp8 && !memory::on_gpu(*run_.compute)) warn_of_emulated_fp8();
  auto const m = run_.weights->memory();
  auto const bytes = [](std::size_t count) {
    return human_bytes(static_cast<std::int64_t>(count));
  };
  log::info(fmt::format(
      "model states per rank: {} (weights {}, gradients {}, master weights {}, optimizer states "
      "{}; stage formula {}), buffers {}, activations {}",
      bytes(m.weights + m.gradients + m.master_weights + m.optimizer_state), bytes(m.weights),
      bytes(m.gradients), bytes(m.master_weights), bytes(m.optimizer_state), bytes(m.formula),
      bytes(m.buffers), bytes(activation_bytes_)));
  auto const& engine = run_.weights->config();
  auto const& offload = zero::settings<zero::ShardedStates>(engine).optimizer_offload;
  if (m.offloaded_share > 0)
    log::info(
        fmt::format("optimizer on the CPU: {:.3g} % of the elements, in tiles of up to {} elements",
                    100 * m.offloaded_share, with_commas(offload->tile_numel)));
  if (offload && offload->delay_from > 0)
    log::info(fmt::format(
        "delayed update: from optimizer step {} on the CPU updates while the next step computes "
        "with weights that lack this update; a save or an evaluation completes it first",
        with_commas(offload->delay_from)));
  if (m.offloaded > 0)
    log::info(fmt::format(
        "host memory of offloaded states per rank: {}{}, {} of it pinned", bytes(m.offloaded),
        m.offloaded_weights > 0 ? fmt::format(" (weights {})", bytes(m.offloaded_weights)) : "",
        bytes(m.pinned)));
  if (host_checkpoint_bytes_ > 0)
    log::info(fmt::format("activation checkpoints: {} per rank in host memory",
                          bytes(host_checkpoint_bytes_)));
  for (auto const& line : swap_lines(engine, m)) log::info(line);
  for (auto const& line : swap_warnings(engine)) log::warning(line);
  if (m.swap) job_.status.set("offload", swap_status(engine, m));
  job_.status.set("memory", memory_tree(m.swapped));
}

void TrainingSetup::load_weights(StartingPoint const& start) {
  if (start.checkpoint.empty()) {
    start_fresh();
  } else if (job_.arguments.do_train) {
    restore(start);
  } else {
    load_checkpoint_weights(start);
    name_run(nullptr, start);
  }
  if (memory_) checkpoint::forget_after(*memory_, run_.state.first_step - 1, job_.comm);
}

void TrainingSetup::start_fresh() {
  initialize_weights(start_values());
  name_run(nullptr, {});
}

StartingPoint TrainingSetup::newest() {
  return memory_ ? newer_of(disk_, *memory_, memory_before_, job_.comm) : disk_;
}

/// Takes the next one when reading has shown damage of @p at.
StartingPoint TrainingSetup::newest_after_damage(StartingPoint const& at, std::int64_t step) {
  if (at.memory) {
    memory_before_ = step;
  } else {
    refused_.push_back(step);
    disk_ = fall_back(job_.arguments, refused_, job_.comm);
  }
  return newest();
}

zero::Engine::Fill TrainingSetup::start_values() {
  auto const& units = run_.model->units();
  auto values = initial_weights(run_.source, units, static_cast<std::uint64_t>(job_.arguments.seed),
                                job_.session, job_.comm);
  auto const& lora = run_.source.lora;
  if (!lora || !lora->magnitudes || !run_.source.adapter_directory.empty()) return values;
  return with_magnitudes(std::move(values), units, *lora,
                         {run_.config.dtype, run_.weights->config().quantized_base});
}

void TrainingSetup::check_frozen(checkpoint::Manifest const& manifest) const {
  train::check_frozen(manifest.frozen, run_.frozen, manifest.directory.string());
}

/// Loads for a run without training only the weights of a checkpoint of any stage and number of
/// ranks.
void TrainingSetup::load_checkpoint_weights(StartingPoint const& start) {
  auto const manifest = checkpoint::read_manifest(start.checkpoint, job_.comm);
  check_model(manifest);
  auto values = checkpoint::weights_of(manifest, run_.weights->plan());
  if (run_.weights->frozen_plan().parameter_count() > 0)
    values = combine(run_.model->units(), std::move(values), start_values());
  run_.source.weights.directory = start.checkpoint.string();
  initialize_weights(values);
  check_frozen(manifest);
  run_.state.first_step = manifest.step + 1;
  if (job_.is_root()) log::info(concat(start.note, " (step ", manifest.step, ")"));
}

/// A run that may choose takes another checkpoint; one that a user has named is only warned of.
void TrainingSetup::check_finite(std::vector<checkpoint::NonFinite> const& found,
                                 StartingPoint const& at) {
  if (found.empty()) return;
  std::string const problem =
      concat(at.checkpoint.string(), " is not finite: ", checkpoint::text_of(found));
  TESSERA_VALIDATE(!at.may_fall_back, DataError, problem);
  run_.source.weights.problem =
      concat("The training began with values that are inf or NaN: ", problem);
  if (job_.is_root()) log::warning(problem);
}

/// Counts the values that are not finite in the working precision while they are read.
void TrainingSetup::initialize_weights(zero::Engine::Fill const& fill) {
  auto const& units = run_.model->units();
  Dtype const dtype = run_.config.product_dtype;
  bool const rounds = run_.config.round_master_weights;
  checkpoint::NonFiniteTally tally;
  FrozenChecksum checksum;
  bool const counts = run_.weights->plan().is_in_first_copy(job_.comm.rank());
  auto const quantized = run_.config.quantizes_base() ? zero::quantized_parameters(units).in_model
                                                      : std::vector<std::vector<std::size_t>>{};
  auto const is_quantized = [&](memory::UnitIndex u, int p) {
    return !quantized.empty() &&
           std::ranges::binary_search(quantized[position(u)], static_cast<std::size_t>(p));
  };
  run_.weights->initialize(
      [&](memory::UnitIndex u, int p, std::int64_t first, std::int64_t numel, float* out) {
        auto const& parameter = units[position(u)].parameters[static_cast<std::size_t>(p)];
        fill(u, p, first, numel, out);
        // every rank reads the matrices that become codes
        bool const counted = is_quantized(u, p) ? job_.is_root() : counts;
        if (!parameter.trains && counted) checksum.add(parameter.name, first, numel, out);
        if (rounds) zero::round_values(run_.config.dtype, out, numel);
        if (counted) tally.add(parameter.name, "", checkpoint::count_nonfinite(out, numel, dtype));
      });
  if (run_.weights->frozen_plan().parameter_count() > 0)
    run_.frozen = frozen_record(run_.weights->frozen_plan(), checksum.total(job_.comm),
                                run_.source.lora, job_.arguments.model_name_or_path.string());
  auto const found = checkpoint::merge_nonfinite(tally.list(), job_.comm);
  if (found.empty()) return;
  auto& weights = run_.source.weights;
  weights.problem = concat("Weights in ", weights.directory, " are not finite",
                           dtype == Dtype::fp32 ? "" : concat(" in ", name_of(dtype)), ": ",
                           checkpoint::text_of(found));
  if (job_.is_root()) log::warning(weights.problem);
}

/// Restores weights and states. Damage that only reading the data shows sends a run that may choose
/// to an older checkpoint.
void TrainingSetup::restore(StartingPoint const& start) {
  auto const began = Clock::now();
  if (run_.weights->frozen_plan().parameter_count() > 0) initialize_weights(start_values());
  for (StartingPoint at = start;;) {
    auto const manifest =
        at.memory ? at.memory->manifest : checkpoint::read_manifest(at.checkpoint, job_.comm);
    check_model(manifest);
    check_frozen(manifest);
    check_optimizer(manifest, run_.weights->config().optimizer);
    try {
      resume(at, manifest);
      job_.status.set("restore_seconds", seconds_since(began));
      return;
    } catch (DataError const& e) {
      if (!at.may_fall_back) throw;
      StartingPoint const next = newest_after_damage(at, manifest.step);
      bool const fresh = next.checkpoint.empty() && refused_.empty();  // all were in memory
      if (next.checkpoint.empty() && !fresh)
        throw DataError(concat(e.what(), "; there is no other complete checkpoint in ",
                               job_.arguments.output_dir.string()));
      if (job_.is_root())
        log::warning(concat(at.checkpoint.string(), " is damaged (", e.what(), "); ",
                            fresh ? "starting from the first step" : "trying an older checkpoint"));
      if (fresh) return start_fresh();
      at = next;
    }
  }
}

/// @throws DataError when the data is damaged
void TrainingSetup::resume(StartingPoint const& at, checkpoint::Manifest const& manifest) {
  ResumeChanges changes;
  comm::run_on_ranks(job_.comm, job_.is_root(), [&] { changes = find_changes(manifest); });
  std::vector<fs::path> fetched;
  if (at.memory)
    fetched = checkpoint::fetch_shards(
        *at.memory, *memory_, run_.engine->plan(),
        checkpoint::layers_of(zero::saved_states(run_.engine->config())), job_.comm);
  auto const restored = read_states(manifest, *run_.engine, job_.comm);
  std::error_code ignored;
  for (auto const& file : fetched) fs::remove(file, ignored);
  check_finite(restored.nonfinite, at);
  name_run(&manifest, at);
  auto const engine = read_trainer_state(manifest.trainer_state, run_.state);
  run_.engine->load_state(engine.optimizer_steps, engine.scaler);
  run_.state.tokens = manifest.tokens;
  run_.state.samples = manifest.samples;
  run_.state.first_step = manifest.step + 1;
  run_.resumed_step = manifest.step;
  run_.saved_step = at.memory ? at.disk_step : manifest.step;
  if (job_.is_root()) log_changes(manifest, changes);
  if (!at.note.empty() && job_.is_root()) log::info(at.note);
  auto const& optimizer = run_.weights->config().optimizer;
  if (job_.is_root() && optimizer_states(manifest) != optimizer.state_names())
    log::info(concat(at.checkpoint.string(), " has no optimizer states; those of ",
                     optimizer.algorithm, " start at zero"));
}

/// A run keeps its id as long as it resumes in its own directory.
void TrainingSetup::name_run(checkpoint::Manifest const* resumed, StartingPoint const& at) {
  auto& state = run_.state;
  if (job_.is_root()) {
    auto const is_own = [&](fs::path const& directory) {
      return fs::weakly_canonical(directory).parent_path() ==
             fs::weakly_canonical(job_.arguments.output_dir / "checkpoints");
    };
    bool const own = resumed && (at.memory || is_own(resumed->directory));
    bool const named = own && !resumed->run_id.empty() && resumed->run_id != "imported";
    state.run_id = named ? resumed->run_id : new_run_id();
    if (resumed)
      state.resumed_from.set("run_id", resumed->run_id)
          .set("step", resumed->step)
          .set("checkpoint", resumed->directory.string());
    fs::path const& on_disk = at.memory ? disk_.checkpoint : at.checkpoint;
    if (own && !on_disk.empty() && is_own(on_disk))
      run_.own_checkpoint = on_disk.filename().string();
    job_.status.set("run_id", state.run_id);
    if (resumed) job_.status.set("resumed_from", state.resumed_from);
  }
  state.run_id = comm::broadcast_bytes(job_.comm, state.run_id, 0);
}

void TrainingSetup::check_model(checkpoint::Manifest const& manifest) const {
  check_adapters(manifest.frozen, run_.source.lora, manifest.directory.string());
  try {
    checkpoint::check_model(manifest, run_.weights->plan());
  } catch (DataError const& e) {
    auto const differences = compare_models(manifest.model_config, run_.model->config());
    if (differences.empty()) throw;
    throw DataError(concat(e.what(), ": ", join(differences)));
  }
}

/// Finds the changes on rank 0. @throws UsageError when the checkpoint's step says nothing about
/// the data of this run
ResumeChanges TrainingSetup::find_changes(checkpoint::Manifest const& manifest) const {
  RunDescription saved, now;
  if (auto const* data = manifest.trainer_state.find("data")) saved.data = *data;
  if (auto const* schedule = manifest.trainer_state.find("schedule"))
    saved.total_steps = schedule->get_int("total_steps", 0);
  saved.resolved_config = manifest.resolved_config;
  saved.model_config = manifest.model_config;
  now.data = data_description(*run_.sampler, run_.data.identity);
  now.total_steps = run_.sampler->total_steps();
  now.resolved_config = resolved_config(job_, run_);
  now.model_config = run_.model->config();
  auto changes = compare(saved, now);
  TESSERA_VALIDATE(
      changes.data.empty() || job_.arguments.allow_changed_data, UsageError, "cannot resume from ",
      manifest.directory.string(), " with other data: ", join(changes.data, "; "),
      ". Its steps would read other samples. Use the same data, ",
      "or --allow_changed_data to continue with step ", manifest.step + 1, " of the new data");
  return changes;
}

void TrainingSetup::log_changes(checkpoint::Manifest const& manifest,
                                ResumeChanges const& changes) const {
  std::string const since =
      concat(" since ", manifest.directory.filename().string(), " was saved: ");
  if (!changes.data.empty())
    log::warning(concat("the data changed", since, join(changes.data, "; "), "; step ",
                        manifest.step + 1, " reads the new data (--allow_changed_data)"));
  if (!changes.training.empty())
    log::warning(concat("changed", since, join(changes.training, "; ")));
  if (!changes.other.empty())
    log::info(concat("changed without effect on the steps", since, join(changes.other, "; ")));
  double const now = epochs_after(*run_.sampler, manifest.step);
  double const then = manifest.trainer_state.get_double("epoch", now);
  if (changes.data.empty() && std::abs(now - then) > 1e-6)
    log::warning(fmt::format(
        "step {} ended epoch {:.4g} when it was saved and ends epoch {:.4g} with this batch size; "
        "the samples between are {}",
        manifest.step, then, now, now > then ? "skipped" : "read again"));
}

ConfigTree resolved_config(JobContext const& job, TrainingRun const& run) {
  auto const& info = job.session.info();
  ConfigTree machine;
  machine.set("ranks", info.world_size)
      .set("nodes", info.node_count)
      .set("threads", memory::Runtime::threads());
  machine.set("device", memory::Runtime::description());
  return ConfigTree()
      .set("arguments", config::describe(job.arguments))
      .set("engine", config::describe(run.config))
      .set("deepspeed", job.arguments.deepspeed.document)
      .set("machine", machine);
}

}  // namespace tessera::train
