#include "tools/detail/trainer_reader.hpp"

#include <algorithm>
#include <unordered_map>

#include "format/detail/json_reader.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

using Parameters = std::vector<memory::ParameterSpec const*>;

constexpr std::int64_t largest_record = std::int64_t{64} << 20;

/// What to do about states that are not read.
std::string only_weights(fs::path const& directory) {
  return concat("to import only the weights, move optimizer.pt and trainer_state.json out of ",
                directory.string());
}

/// Index of a parameter's module in its block in transformers 4 and 5, as far as that is not
/// the order of the unit: norms come behind attention and perceptron in the families with
/// self_attn, before them in GPT-NeoX; norms of queries and keys, and Phi-3's joint projection,
/// behind the output's.
int place_in_block(std::string const& name) {
  auto const has = [&](char const* part) { return name.find(part) != std::string::npos; };
  if (name.starts_with("gpt_neox.layers.")) return has(".attention.") || has(".mlp.") ? 1 : 0;
  if (!name.starts_with("model.layers.")) return 0;
  if (has(".self_attn.")) return has(".qkv_proj.") || has(".q_norm.") || has(".k_norm.") ? 1 : 0;
  return has(".mlp.") ? 2 : 3;
}

/// Returns the parameters in the order of model.named_parameters().
Parameters module_order(std::vector<memory::UnitSpec> const& units) {
  Parameters all;
  for (auto const& unit : units) {
    auto const begin = static_cast<std::ptrdiff_t>(all.size());
    for (auto const& parameter : unit.parameters) all.push_back(&parameter);
    std::stable_sort(all.begin() + begin, all.end(), [](auto const* a, auto const* b) {
      return place_in_block(a->name) < place_in_block(b->name);
    });
  }
  return all;
}

/// The Trainer's groups: parameters with weight decay, and those without: biases and norms. Older
/// versions of transformers knew only some classes of norms, so that the others had weight decay.
std::vector<Parameters> groups_of(std::vector<memory::UnitSpec> const& units,
                                  PickleValue const& list, fs::path const& directory) {
  std::vector<std::size_t> sizes;
  for (std::size_t g = 0; g < list.size(); ++g) sizes.push_back(list[g].at("params").size());
  auto const all = module_order(units);
  auto const split = [&](auto const& decays) {
    std::vector<Parameters> groups(2);
    for (auto const* parameter : all) groups[decays(*parameter) ? 0 : 1].push_back(parameter);
    return groups;
  };
  auto const fits = [&](std::vector<Parameters> const& groups) {
    return sizes == std::vector<std::size_t>{groups[0].size(), groups[1].size()};
  };
  auto const now = split([](auto const& parameter) { return parameter.decays; });
  if (fits(now)) return now;
  auto const before = split([](auto const& p) { return !p.name.ends_with(".bias"); });
  if (fits(before)) return before;
  list.fail(concat("the optimizer has groups of ",
                   list_text(std::vector<std::int64_t>(sizes.begin(), sizes.end())),
                   " parameters, the Trainer's for this model have ", now[0].size(), " and ",
                   now[1].size(), " (with and without weight decay); frozen parameters and groups ",
                   "of one's own cannot be told apart: ", only_weights(directory)));
}

void read_states(std::vector<memory::UnitSpec> const& units, TorchFile const& file,
                 TrainingSource& source) {
  int const index = source.files.add(file.path());
  PickleValue const states = file.root().at("state"), list = file.root().at("param_groups");
  std::unordered_map<std::int64_t, PickleValue> by_number;
  for (std::size_t i = 0; i < states.pairs(); ++i)
    by_number.emplace(states.pair_key(i).as_int(), states.pair_value(i));
  auto const groups = groups_of(units, list, source.directory);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    source.has_stateless_optimizer |= keeps_no_state(file, list[g]);
    PickleValue const numbers = list[g].at("params");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      auto const& parameter = *groups[g][i];
      source.tensors.push_back({.name = parameter.name,
                                .shape = parameter.shape,
                                .numel = parameter.numel(),
                                .states = {StateSource()}});
      auto const found = by_number.find(numbers[i].as_int());
      if (found == by_number.end()) continue;  // it never had a gradient
      PickleValue const& state = found->second;
      auto names = state_names_in(state, only_weights(source.directory));
      if (names.empty()) continue;
      names.insert(names.begin(), optim::master_weights_name);
      if (source.state_names.size() > 1 && names != source.state_names)
        state.fail(concat("the optimizer keeps ", join(names), " of ", parameter.name, ", and ",
                          join(source.state_names), " of others"));
      source.state_names = names;
      for (std::size_t s = 1; s < names.size(); ++s) {
        auto const place = file.tensor(state.at(names[s]));
        if (place.shape != parameter.shape)
          state.fail(concat(names[s], " of parameter ", found->first, " has shape ",
                            list_text(place.shape), ", ", parameter.name, " has ",
                            list_text(parameter.shape)));
        source.tensors.back().states.push_back(whole(index, place));
      }
      source.optimizer_steps = std::max(source.optimizer_steps, steps_in(file, state));
    }
  }
}

/// The scheduler advances with every update that was not skipped for an overflow.
void read_schedule(fs::path const& path, TrainingSource& source) {
  if (!path_exists(path)) return;
  TorchFile const file(path);
  PickleValue const root = file.root();
  auto const last = root.find("last_epoch");
  if (!last || root.find("num_bad_epochs")) return;  // ReduceLROnPlateau counts evaluations
  std::int64_t const done = last->as_int();
  if (done < 0 || done > source.global_steps)
    root.fail(concat("the schedule is at step ", done, ", trainer_state.json at ",
                     source.global_steps, "; the files are of different saves"));
  source.skipped_steps = source.global_steps - done;
}

/// The sequences that the run has read. Each process has written its own rng_state.
void read_batch(fs::path const& directory, ConfigTree const& record, TrainingSource& source) {
  fs::path const path = directory / "training_args.bin";
  auto const* const rows = record.find("train_batch_size");
  if (!path_exists(path) || !rows || !rows->is_number()) return;
  std::int64_t batch = 1, processes = 1;
  while (path_exists(directory / concat("rng_state_", processes, ".pth"))) ++processes;
  TorchFile const file(path);
  PickleValue const arguments = file.root();
  auto const accumulated = arguments.state().at("gradient_accumulation_steps").as_int();
  for (auto const factor : {rows->as_int(), accumulated, processes})
    if (factor < 1 || __builtin_mul_overflow(batch, factor, &batch))
      arguments.fail(concat("the batch is ", rows->as_int(), " * ", accumulated, " * ", processes));
  if (__builtin_mul_overflow(batch, source.global_steps, &source.samples))
    arguments.fail(concat(source.global_steps, " steps of ", batch, " sequences are too many"));
  source.config.set("train_batch_size", batch);
}

/// torch's GradScaler counts the steps since the last overflow.
void read_scaler(fs::path const& path, TrainingSource& source) {
  if (!path_exists(path)) return;
  TorchFile const file(path);
  auto const scale = file.root().find("scale");
  if (!scale) return;  // it was disabled
  optim::LossScalerState scaler;
  scaler.scale = file.number(*scale);
  scaler.iteration = file.root().at("_growth_tracker").as_int();
  scaler.last_overflow = -1;
  scaler.hysteresis = 1;  // it lowers the scale at the first overflow
  source.loss_scaler = scaler;
}

void refuse_unread(fs::path const& directory) {
  TESSERA_VALIDATE(has_model_weights(directory) || !path_exists(directory / "adapter_config.json"),
                   DataError, directory.string(),
                   " is of a PEFT run: it has adapter_config.json and no model, and the states of "
                   "adapters are not imported; continue from the adapter with "
                   "--model_name_or_path BASE --adapter ",
                   directory.string());
  for (char const* name : {"pytorch_model_fsdp_0", "optimizer_0", "optimizer.bin"})
    TESSERA_VALIDATE(
        !path_exists(directory / name), DataError, directory.string(), " has ", name,
        ", which FSDP writes and which is not read; import the directory that the Trainer's "
        "save_model writes (weights only), or one with only config.json and model.safetensors");
}

}  // namespace

std::optional<ConfigTree> trainer_record(fs::path const& directory) {
  fs::path const path = directory / "trainer_state.json";
  if (!path_exists(path)) return std::nullopt;
  refuse_unread(directory);
  return ConfigTree::parse_record(read_text(path, largest_record), path.string());
}

TrainingSource read_trainer(fs::path const& directory, ConfigTree const& record,
                            std::vector<memory::UnitSpec> const& units, CrcCheck check) {
  TrainingSource source;
  source.directory = directory;
  source.format = "checkpoint of the Hugging Face Trainer";
  source.global_steps = record.at("global_step").as_int();
  TESSERA_VALIDATE(source.global_steps >= 0, DataError, directory.string(),
                   "/trainer_state.json says global_step ", source.global_steps);
  if (auto const* epoch = record.find("epoch"); epoch && epoch->is_number())
    source.config.set("epoch", *epoch);
  read_states(units, TorchFile(directory / "optimizer.pt", check), source);
  read_schedule(directory / "scheduler.pt", source);
  read_batch(directory, record, source);
  read_scaler(directory / "scaler.pt", source);
  return source;
}

}  // namespace tessera::checkpoint::detail
