#include "interchange/detail/deepspeed_states.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "format/detail/json_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {

namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> integers(PickleValue value) {
  std::vector<std::int64_t> out;
  if (!value.is_sequence()) return {value.as_int()};
  for (std::size_t i = 0; i < value.size(); ++i) out.push_back(value[i].as_int());
  return out;
}

/// What the hyperparameters of an optimizer say of its states.
enum class UnusedStates { none, exp_avg_sq };

/// DeepSpeed's CPULion makes an exp_avg_sq that it does not use. Its groups have betas and no eps.
UnusedStates unused_states(PickleValue const& group) {
  return group.find("betas") && !group.find("eps") ? UnusedStates::exp_avg_sq : UnusedStates::none;
}

/// DeepSpeed's CPUAdagrad names its sum of squares exp_avg_sq; no other optimizer keeps only that.
constexpr char const *name_of_sum = "sum", *name_of_sum_in_cpu_adagrad = "exp_avg_sq";

bool is_cpu_adagrad(std::vector<std::string> const& names) {
  return names == std::vector<std::string>{name_of_sum_in_cpu_adagrad};
}

/// The states of one group; a group that never had a gradient has none and starts at zero.
void read_states(TorchFile const& file, PickleValue state, RankStates& rank, std::size_t group,
                 UnusedStates unused = UnusedStates::none) {
  if (state.pairs() == 0) return;
  auto names = state_names_in(state);
  if (unused == UnusedStates::exp_avg_sq) std::erase(names, "exp_avg_sq");
  bool const is_renamed = is_cpu_adagrad(names);
  if (is_renamed) names = {name_of_sum};
  add_states(rank, names, rank.flat[0].size());
  for (std::size_t s = 1; s < rank.names.size(); ++s)
    if (auto const found = state.find(is_renamed ? name_of_sum_in_cpu_adagrad : rank.names[s]))
      rank.flat[s][group] = file.tensor(*found);
  rank.optimizer_steps = std::max(rank.optimizer_steps, steps_in(file, state));
}

/// {"state": {index: {...}}, "param_groups": [...]}, or with elastic_checkpoint a list of the inner
/// dicts.
void read_optimizer(TorchFile const& file, PickleValue optimizer, RankStates& rank,
                    std::size_t groups) {
  if (optimizer.is_sequence()) {
    if (optimizer.size() != groups)
      optimizer.fail(concat("the optimizer has states of ", optimizer.size(),
                            " groups, the master weights ", groups));
    for (std::size_t g = 0; g < groups; ++g) read_states(file, optimizer[g], rank, g);
    return;
  }
  auto unused = UnusedStates::none;
  if (auto const list = optimizer.find("param_groups"); list && list->size() > 0) {
    rank.has_stateless_optimizer = keeps_no_state(file, (*list)[0]);
    unused = unused_states((*list)[0]);
  }
  PickleValue const states = optimizer.at("state");
  for (std::size_t i = 0; i < states.pairs(); ++i) {
    std::int64_t const group = states.pair_key(i).as_int();
    if (group < 0 || static_cast<std::size_t>(group) >= groups)
      states.fail(concat("the optimizer has a state ", group, ", the master weights have ", groups,
                         " groups"));
    read_states(file, states.pair_value(i), rank, static_cast<std::size_t>(group), unused);
  }
}

}  // namespace

void add_states(RankStates& rank, std::vector<std::string> const& names, std::size_t groups) {
  for (auto const& name : names) {
    if (std::find(rank.names.begin(), rank.names.end(), name) != rank.names.end()) continue;
    rank.names.push_back(name);
    rank.flat.emplace_back(groups);
  }
}

std::regex const& optimizer_file_pattern() {
  static std::regex const pattern(
      "(?:bf16_|fp16_)?zero_pp_rank_([0-9]{1,6})_mp_rank_([0-9]{1,4})_?optim_states\\.pt");
  return pattern;
}

std::optional<optim::LossScalerState> read_loss_scaler(TorchFile const& file,
                                                       std::optional<PickleValue> scaler) {
  if (!scaler || scaler->kind() != Pickle::Kind::object || !scaler->state().is_dict())
    return std::nullopt;
  PickleValue const state = scaler->state();
  if (!state.find("cur_iter") || !state.find("cur_scale")) return std::nullopt;
  optim::LossScalerState out;
  out.scale = file.number(state.at("cur_scale"));
  out.iteration = state.at("cur_iter").as_int();
  if (auto const last = state.find("last_overflow_iter")) out.last_overflow = last->as_int();
  if (auto const hysteresis = state.find("cur_hysteresis"))
    out.hysteresis = static_cast<int>(std::clamp<std::int64_t>(hysteresis->as_int(), 1, 1 << 30));
  return out;
}

RankStates read_rank(fs::path const& path, Wanted wanted, CrcCheck check) {
  TorchFile const file(path, check);
  std::smatch saved, named;
  std::string const saved_as = file.saved_name() + ".pt", name = path.filename().string();
  bool const renamed = std::regex_match(saved_as, saved, optimizer_file_pattern()) &&
                       std::regex_match(name, named, optimizer_file_pattern()) &&
                       saved[1] != named[1];
  TESSERA_VALIDATE(!renamed, DataError, path.string(), " was saved as ", saved_as,
                   "; give the files of the ranks their names back");
  PickleValue const root = file.root().at("optimizer_state_dict");
  RankStates rank;
  auto const stage3 = root.find("fp32_flat_groups");
  PickleValue const groups = stage3 ? *stage3 : root.at("single_partition_of_fp32_groups");
  if (auto const experts = root.find("ds_zero_partition_groups"); experts && !experts->is_none())
    root.fail(
        "parameters are partitioned over groups of ranks (mixture of experts); such checkpoints "
        "are not read");
  rank.stage = stage3 ? 3 : 1;
  if (auto const stage = root.find("zero_stage"); stage && !stage3)
    rank.stage = static_cast<int>(
        stage->kind() == Pickle::Kind::object ? stage->arguments()[0].as_int() : stage->as_int());
  for (std::size_t g = 0; g < groups.size(); ++g) rank.flat[0].push_back(file.tensor(groups[g]));
  rank.partition_count = integers(root.at("partition_count"));
  if (auto const paddings = root.find("param_alignment_paddings");
      paddings && paddings->is_sequence())
    for (std::size_t g = 0; g < paddings->size(); ++g)
      rank.paddings.push_back(integers((*paddings)[g]));
  rank.scaler = read_loss_scaler(file, root.find("loss_scaler"));
  if (wanted == Wanted::training_state)
    read_optimizer(file, root.at(stage3 ? "optimizer_state_dict" : "base_optimizer_state"), rank,
                   groups.size());
  return rank;
}

namespace {

std::vector<ModelStates::Shape> read_shapes(PickleValue dict) {
  std::vector<ModelStates::Shape> out;
  dict.each_member([&](std::string const& name, PickleValue shape) {
    out.push_back({name, read_shape(shape), 0});
    out.back().numel = numel_of(out.back().shape, shape);
  });
  return out;
}

std::vector<std::pair<std::string, TensorLocation>> read_tensors(TorchFile const& file,
                                                                 PickleValue dict) {
  std::vector<std::pair<std::string, TensorLocation>> out;
  dict.each_member([&](std::string const& name, PickleValue value) {
    if (auto place = file.find_tensor(value)) out.emplace_back(name, std::move(*place));
  });
  return out;
}

std::int64_t counter(PickleValue root, char const* key) {
  auto const value = root.find(key);
  if (!value || value->is_none()) return 0;
  if (value->as_int() < 0) root.fail(concat(key, " is ", value->as_int()));
  return value->as_int();
}

}  // namespace

ModelStates read_model_states(std::filesystem::path const& path, TrainingSource& source,
                              CrcCheck check) {
  TorchFile const file(path, check);
  PickleValue const root = file.root();
  ModelStates model;
  model.file = source.files.add(path);
  if (auto const shapes = root.find("param_shapes"); shapes && !shapes->is_none()) {
    if (shapes->is_dict())
      model.groups.push_back(read_shapes(*shapes));  // written before there were several groups
    else
      for (std::size_t g = 0; g < shapes->size(); ++g)
        model.groups.push_back(read_shapes((*shapes)[g]));
  }
  if (auto const frozen = root.find("frozen_param_shapes"); frozen && !frozen->is_none())
    model.frozen = read_shapes(*frozen);
  if (auto const module = root.find("module"); module && module->is_dict())
    model.module = read_tensors(file, *module);
  if (auto const fragments = root.find("frozen_param_fragments");
      fragments && !fragments->is_none())
    model.frozen_fragments = read_tensors(file, *fragments);
  if (auto const names = root.find("buffer_names"); names && names->is_sequence())
    for (std::size_t i = 0; i < names->size(); ++i)
      model.buffer_names.push_back((*names)[i].as_text());
  if (auto const shared = root.find("shared_params"); shared && !shared->is_none()) {
    // a dict in new versions, pairs in old ones
    if (shared->is_dict())
      shared->each_member([&](std::string const& alias, PickleValue owner) {
        model.shared.emplace_back(alias, owner.as_text());
      });
    else
      for (std::size_t i = 0; i < shared->size(); ++i)
        model.shared.emplace_back((*shared)[i][0].as_text(), (*shared)[i][1].as_text());
  }
  source.global_steps = counter(root, "global_steps");
  source.skipped_steps = std::min(counter(root, "skipped_steps"), source.global_steps);
  source.samples = counter(root, "global_samples");
  if (auto const config = root.find("ds_config"); config && config->is_dict())
    source.config = config->to_tree();
  if (auto const version = root.find("ds_version");
      version && version->kind() == Pickle::Kind::text)
    source.version = printable(version->as_text());
  return model;
}

void add_buffers(ModelStates const& model, TrainingSource& source) {
  std::set<std::string> const names(model.buffer_names.begin(), model.buffer_names.end());
  for (auto const& [name, place] : model.module)
    if (names.contains(name))
      source.tensors.push_back({name,
                                place.shape,
                                {},
                                SourceTensor::Kind::buffer,
                                place.numel,
                                {whole(model.file, place)}});
}

/// By `shared_params`, and by what has the same storage in the module's state.
void add_aliases(ModelStates const& model, TrainingSource& source) {
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < source.tensors.size(); ++i) index.emplace(source.tensors[i].name, i);
  auto const add = [&](std::string const& alias, std::string const& owner) {
    auto const it = index.find(owner);
    if (it == index.end() || index.contains(alias)) return;
    source.tensors[it->second].aliases.push_back(alias);
    index.emplace(alias, it->second);
  };
  for (auto const& [alias, owner] : model.shared) add(alias, owner);
  std::unordered_map<std::int64_t, std::pair<std::string, TensorLocation const*>> by_place;
  for (auto const& [name, place] : model.module)
    if (place.numel > 0 && index.contains(name))
      by_place.emplace(place.file_offset, std::pair(name, &place));
  for (auto const& [name, place] : model.module)
    if (auto const it = by_place.find(place.file_offset);
        place.numel > 0 && it != by_place.end() && place.same_as(*it->second.second))
      add(name, it->second.first);
}

}  // namespace tessera::checkpoint::detail
