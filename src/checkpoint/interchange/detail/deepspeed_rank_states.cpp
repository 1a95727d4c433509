#include "interchange/detail/deepspeed_rank_states.hpp"

#include <algorithm>
#include <string>

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
  auto const step = state.find("step");
  double const steps = step ? file.number(*step) : 0;
  if (!(steps >= 0 && steps < 9e15)) state.fail(concat("the optimizer's step is ", steps));
  rank.optimizer_steps = std::max(rank.optimizer_steps, static_cast<std::int64_t>(steps));
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

}  // namespace tessera::checkpoint::detail
