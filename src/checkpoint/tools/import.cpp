// A training state of another program into a checkpoint, through the writers that save() uses.

#include "tessera/checkpoint/tools/import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "format/detail/file.hpp"
#include "format/detail/json_reader.hpp"
#include "interchange/detail/deepspeed_reader.hpp"
#include "interchange/detail/training_source.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tools/detail/trainer_reader.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using detail::SourceTensor;
using detail::TrainingSource;

/// DeepSpeed's initial dynamic scaler (docs/explanation/loss-scaling.md), for sources without one:
/// a run in fp32 or bf16 ignores it, one in fp16 starts as it would from random weights.
optim::LossScalerState const fresh_scaler{65536.0, 0, -1, 2};

constexpr char no_states_note[] =
    "the source has no optimizer states; a run that resumes from this checkpoint starts them at "
    "zero";

/// What a checkpoint of the Hugging Face Trainer without optimizer.pt or trainer_state.json has
/// besides the weights; empty: it is none.
std::string trainer_note(fs::path const& directory, std::optional<ConfigTree> const& record) {
  std::string found;
  std::error_code error;
  for (char const* name : {"optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt"})
    if (fs::exists(directory / name, error))
      found += (found.empty() ? "" : ", ") + std::string(name);
  if (!record) return found.empty() ? "" : found + " are not read";
  auto const step = record->get_int("global_step", 0);
  return concat(found, found.empty() ? "" : ", ", "trainer_state.json (step ", step,
                ") are not read: a run that resumes from this checkpoint begins at step 0, and its "
                "optimizer's states at zero; give it --max_steps without the ",
                step, " steps, or finish the run where it began");
}

/// A run of PEFT saves adapters and, frozen, the model under names of its own.
void refuse_adapters(TrainingSource const& source) {
  auto const is_adapter = [](SourceTensor const& t) { return detail::is_peft_adapter(t.name); };
  auto const first = std::ranges::find_if(source.tensors, is_adapter);
  if (first == source.tensors.end()) return;
  std::string const directory = source.directory.string();
  fs::path const saved = fs::absolute(source.directory).lexically_normal().parent_path();
  bool const has_adapter = fs::exists(saved / "adapter_config.json");
  throw DataError(concat(
      directory, " is of a PEFT run: it has ", std::ranges::count_if(source.tensors, is_adapter),
      " tensors of adapters such as ", detail::printable(first->name),
      ", whose optimizer states are not imported; continue from the adapter with "
      "--model_name_or_path BASE --adapter ",
      has_adapter
          ? saved.string()
          : concat("DIR, where DIR has PEFT's adapter_config.json and the output of "
                   "`zero-to-fp32 ",
                   directory, " DIR/adapter_model.safetensors --exclude_frozen_parameters`")));
}

/// The source's tensor of every parameter of the model, [unit][parameter].
using Matched = std::vector<std::vector<std::size_t>>;

/// Matches a parameter by any of its names. Trained tensors that the model does not have are an
/// error: it would be another model.
Matched match(TrainingSource const& source, std::vector<memory::UnitSpec> const& units) {
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < source.tensors.size(); ++i) {
    by_name.emplace(source.tensors[i].name, i);
    for (auto const& alias : source.tensors[i].aliases) by_name.emplace(alias, i);
  }
  std::vector<bool> used(source.tensors.size(), false);
  Matched matched;
  std::string problems;
  int count = 0;
  auto const complain = [&](std::string const& problem) {
    if (++count <= 10) problems += (problems.empty() ? "" : "; ") + problem;
  };
  for (auto const& unit : units) {
    auto& row = matched.emplace_back();
    for (auto const& parameter : unit.parameters) {
      auto found = by_name.end();
      for (auto const& name : detail::possible_names(parameter))
        if (found == by_name.end()) found = by_name.find(name);
      if (found == by_name.end())
        complain(parameter.name + " is missing");
      else if (source.tensors[found->second].shape != parameter.shape)
        complain(concat(parameter.name, " has shape ",
                        detail::list_text(source.tensors[found->second].shape),
                        ", the model wants ", detail::list_text(parameter.shape)));
      row.push_back(found == by_name.end() ? 0 : found->second);
      if (found != by_name.end()) used[found->second] = true;
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i] && source.tensors[i].kind == SourceTensor::Kind::trained)
      complain(source.tensors[i].name + " is not in the model");
  if (count > 10) problems += concat("; and ", count - 10, " more");
  TESSERA_VALIDATE(count == 0, DataError, source.directory.string(),
                   " does not fit config.json: ", problems);
  return matched;
}

ConfigTree trainer_state(TrainingSource const& source) {
  auto const scaler = source.loss_scaler.value_or(fresh_scaler);
  ConfigTree state, scaler_state;
  scaler_state.set("scale", scaler.scale)
      .set("iteration", scaler.iteration)
      .set("last_overflow", scaler.last_overflow)
      .set("hysteresis", scaler.hysteresis);
  state.set("step", source.global_steps)
      .set("applied_steps", source.global_steps - source.skipped_steps);
  state.set("optimizer_steps", source.updates()).set("loss_scaler", scaler_state);
  if (auto const* batch = source.config.find("train_batch_size"); batch && batch->is_int())
    state.set("train_batch_size", *batch);
  if (auto const* epoch = source.config.find("epoch"); epoch && epoch->is_number())
    state.set("epoch", *epoch);
  return state;
}

ConfigTree origin(TrainingSource const& source) {
  ConfigTree tree, from;
  from.set("format", source.format)
      .set("directory", fs::absolute(source.directory).string())
      .set("version", source.version);
  tree.set("imported", from).set("configuration", source.config);
  return tree;
}

int shards_for(ImportOptions const& options, std::size_t states) {
  std::int64_t bytes = 0;
  for (auto const& unit : options.units)
    for (auto const& parameter : unit.parameters)
      bytes += parameter.numel() * 4 * static_cast<std::int64_t>(states);
  std::int64_t const shards = ceil_divide(bytes, options.max_shard_bytes);
  return static_cast<int>(std::clamp<std::int64_t>(shards, 1, 99999));
}

/// @p states with a call of the user's after every part.
StreamedStates reported(StreamedStates const& states, std::int64_t parameters,
                        ProgressCall const& progress) {
  if (!progress) return states;
  std::int64_t const total = parameters * 4 * static_cast<std::int64_t>(states.names.size());
  return {states.names, [&states, &progress, total, done = std::int64_t{0}](
                            std::string const& state, zero::ShardExtent const& extent,
                            std::int64_t first, std::int64_t numel, float* out) mutable {
            states.read(state, extent, first, numel, out);
            progress(done += numel * 4, total);
          }};
}

SavedCheckpoint write(ImportOptions const& options, TrainingSource const& source,
                      StreamedStates const& states) {
  zero::PartitionPlan const plan(options.units, shards_for(options, states.names.size()));
  SaveRequest const request{.directory = options.checkpoints,
                            .step = source.global_steps,
                            .tokens = 0,
                            .samples = source.samples,
                            .zero_stage = source.stage,
                            .run_id = "imported",
                            .plan = plan,
                            .units = options.units,
                            .keep = 0,
                            .nonfinite = NonFiniteState::record,
                            .model_config = options.model_config,
                            .resolved_config = origin(source),
                            .trainer_state = trainer_state(source),
                            .versions = options.versions};
  return save_all(request, reported(states, plan.parameter_count(), options.progress));
}

/// Reads the tensors of @p source. @pre both outlive what reads
auto reader_of(TrainingSource& source, Matched const& matched) {
  return [&source, &matched](std::string const& state, zero::ShardExtent const& extent,
                             std::int64_t first, std::int64_t numel, float* out) {
    auto const s = std::find(source.state_names.begin(), source.state_names.end(), state) -
                   source.state_names.begin();
    auto const tensor = matched[position(extent.unit)][static_cast<std::size_t>(extent.parameter)];
    source.read(tensor, static_cast<std::size_t>(s), extent.parameter_offset.value() + first, numel,
                out);
  };
}

/// Writes the checkpoint. The report of a source without states says @p without_states.
ImportReport write_and_report(ImportOptions const& options, TrainingSource const& source,
                              StreamedStates const& states, std::string const& without_states) {
  ImportReport report;
  report.format = source.format;
  report.source = source.directory;
  report.step = source.global_steps;
  report.optimizer_steps = source.updates();
  std::string frozen;
  for (auto const& tensor : source.tensors) {
    for (std::size_t s = 1; s < tensor.states.size(); ++s)
      report.has_optimizer_states =
          report.has_optimizer_states || tensor.states[s].parts != nullptr;
    if (tensor.kind == SourceTensor::Kind::frozen)
      frozen += (frozen.empty() ? "" : ", ") + tensor.name;
  }
  if (!frozen.empty())
    report.notes.push_back(
        "frozen in the source, trained from here on, with zero optimizer states: " + frozen);
  if (!report.has_optimizer_states && !source.has_stateless_optimizer)
    report.notes.push_back(without_states);
  auto const saved = write(options, source, states);
  report.checkpoint = saved.directory;
  report.bytes = saved.bytes;
  report.nonfinite = saved.nonfinite;
  return report;
}

detail::CrcCheck crc_check(ImportOptions const& options) {
  return options.integrity == Integrity::check ? detail::CrcCheck::everything
                                               : detail::CrcCheck::pickle;
}

ImportReport import_training(ImportOptions const& options, fs::path const& directory) {
  TrainingSource source =
      detail::read_deepspeed(directory, detail::Wanted::training_state, crc_check(options));
  refuse_adapters(source);
  auto const matched = match(source, options.units);
  return write_and_report(options, source, {source.state_names, reader_of(source, matched)},
                          no_states_note);
}

/// Weights, and of a checkpoint of the Trainer the optimizer's states and steps. Without those,
/// step 0.
ImportReport import_weights(ImportOptions const& options) {
  auto const record = detail::trainer_record(options.source);
  ModelWeights const weights(options.source);
  std::string const unused = weights.require(options.units);
  TrainingSource source;
  source.format = "Hugging Face model directory";
  source.directory = options.source;
  Matched matched;
  if (record && detail::path_exists(options.source / "optimizer.pt")) {
    source = detail::read_trainer(options.source, *record, options.units, crc_check(options));
    matched = match(source, options.units);
  }
  auto const read_state = reader_of(source, matched);
  StreamedStates states{source.state_names, {}};
  states.read = [&](std::string const& state, zero::ShardExtent const& extent, std::int64_t first,
                    std::int64_t numel, float* out) {
    if (state != optim::master_weights_name) return read_state(state, extent, first, numel, out);
    auto const& parameter =
        options.units[position(extent.unit)].parameters[static_cast<std::size_t>(extent.parameter)];
    weights.fill(parameter, extent.parameter_offset.value() + first, numel, out);
  };
  std::string const of_trainer = trainer_note(options.source, record);
  ImportReport report =
      write_and_report(options, source, states, of_trainer.empty() ? no_states_note : of_trainer);
  if (!unused.empty()) report.notes.push_back("not in the model, and left out: " + unused);
  return report;
}

}  // namespace

namespace {

/// An import gives `latest` its own step: in a used directory, a run would resume from there.
void check_destination(fs::path const& checkpoints) {
  auto const present = list_checkpoints(checkpoints);
  TESSERA_VALIDATE(present.empty(), UsageError, checkpoints.string(), " holds ",
                   present.back().name, " already; import into a directory without checkpoints");
  TESSERA_VALIDATE(!detail::directory_exists(checkpoints / "checkpoints"), UsageError,
                   checkpoints.string(), " is a run directory; import into ",
                   (checkpoints / "checkpoints").string());
}

}  // namespace

ImportReport import_checkpoint(ImportOptions const& options) {
  auto const start = std::chrono::steady_clock::now();
  TESSERA_VALIDATE(!options.units.empty(), InternalError, "an import needs the units of its model");
  TESSERA_VALIDATE(options.max_shard_bytes > 0, UsageError, "max_shard_size is ",
                   options.max_shard_bytes, " bytes; it must be positive");
  TESSERA_VALIDATE(detail::directory_exists(options.source), IoError, options.source.string(),
                   " is not a directory; give DeepSpeed's save_dir, one of its tags, or a Hugging "
                   "Face model directory");
  check_destination(options.checkpoints);
  auto const deepspeed = detail::find_deepspeed(options.source, options.tag, options.when_damaged);
  TESSERA_VALIDATE(deepspeed || options.tag.empty(), IoError, options.source.string(),
                   " has no DeepSpeed checkpoint of tag ", options.tag);
  ImportReport report = deepspeed ? import_training(options, *deepspeed) : import_weights(options);
  for (auto const& unit : options.units)
    for (auto const& parameter : unit.parameters)
      ++report.tensors, report.parameters += parameter.numel();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void check_source(fs::path const& source) { detail::trainer_record(source); }

bool holds_deepspeed_checkpoint(fs::path const& directory) {
  return detail::holds_deepspeed(directory);
}

std::optional<fs::path> find_model_config(fs::path const& source) {
  for (auto const& place : {source / "config.json",
                            fs::absolute(source).lexically_normal().parent_path() / "config.json"})
    if (detail::path_exists(place) && !detail::directory_exists(place)) return place;
  return std::nullopt;
}

}  // namespace tessera::checkpoint
