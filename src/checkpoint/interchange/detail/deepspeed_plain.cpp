#include "interchange/detail/deepspeed_reader.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "interchange/detail/deepspeed_states.hpp"
#include "interchange/detail/element_conversion.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t compared_values = 64;
constexpr std::size_t most_states = 100'000;

/// A group of the optimizer: a place for each parameter, or one flat run of all of them (fused
/// optimizers).
struct Group {
  bool flat = false;
  std::vector<std::optional<TensorLocation>> master_weights;  ///< none in fp32
  /// [parameter][state]; no states for a parameter that never had a gradient
  std::vector<std::vector<TensorLocation>> states;

  TensorLocation const* shape_source(std::size_t i) const {
    if (master_weights[i]) return &*master_weights[i];
    return states[i].empty() ? nullptr : &states[i][0];
  }
  /// Parameters, or elements of a flat one.
  std::int64_t end() const {
    return flat ? master_weights[0]->numel : static_cast<std::int64_t>(master_weights.size());
  }
  std::int64_t numel() const {
    std::int64_t n = 0;
    for (std::size_t i = 0; i < master_weights.size(); ++i)
      n += shape_source(i) ? shape_source(i)->numel : 0;
    return n;
  }
};

using Named = std::pair<std::string, TensorLocation>;

void read_states(TorchFile const& file, PickleValue states, std::vector<PickleValue> const& order,
                 Group& group, TrainingSource& source) {
  for (auto const& index : order) {
    std::optional<PickleValue> state;
    for (std::size_t i = 0; i < states.pairs() && !state; ++i)
      if (states.pair_key(i).kind() == Pickle::Kind::integer &&
          states.pair_key(i).as_int() == index.as_int())
        state = states.pair_value(i);
    auto& places = group.states.emplace_back();
    if (!state) continue;
    auto const names = state_names_in(*state);
    for (auto const& name : names) places.push_back(file.tensor(state->at(name)));
    source.state_names = {optim::master_weights_name};
    source.state_names.insert(source.state_names.end(), names.begin(), names.end());
    source.optimizer_steps = std::max(source.optimizer_steps, steps_in(file, *state));
  }
}

void check_group(Group const& group, PickleValue where) {
  for (std::size_t i = 0; i < group.master_weights.size(); ++i)
    for (auto const& place : group.states[i]) {
      if (group.master_weights[i] && place.numel != group.master_weights[i]->numel)
        where.fail(concat("a master weight has ", group.master_weights[i]->numel,
                          " elements, its optimizer state ", place.numel));
      if (place.shape != group.states[i][0].shape)
        where.fail("the optimizer states of a parameter differ in shape");
    }
}

/// In fp32 torch's own state, else a wrapper with master weights: one for each parameter (unfused)
/// or each group (fused).
std::vector<Group> read_groups(TorchFile const& file, PickleValue optimizer,
                               TrainingSource& source) {
  auto const inner = optimizer.find("optimizer_state_dict");
  PickleValue const plain = inner ? *inner : optimizer;
  auto const unfused = optimizer.find("fp32_groups"), fused = optimizer.find("fp32_groups_flat");
  PickleValue const list = plain.at("param_groups"), states = plain.at("state");
  std::vector<Group> groups;
  for (std::size_t g = 0; g < list.size(); ++g) {
    Group group;
    PickleValue const parameters = list[g].at("params");
    std::vector<PickleValue> order;
    for (std::size_t i = 0; i < parameters.size(); ++i) order.push_back(parameters[i]);
    read_states(file, states, order, group, source);
    source.has_stateless_optimizer |= keeps_no_state(file, list[g]);
    group.flat = fused.has_value();
    for (std::size_t i = 0; i < order.size(); ++i)
      group.master_weights.push_back(fused     ? std::optional(file.tensor((*fused)[g]))
                                     : unfused ? std::optional(file.tensor((*unfused)[g][i]))
                                               : std::nullopt);
    if (group.flat && group.master_weights.size() != 1)
      list.fail(concat("a fused group has ", group.master_weights.size(),
                       " flat parameters instead of one"));
    check_group(group, list);
    groups.push_back(std::move(group));
  }
  return groups;
}

/// The weights of the module are the master weights, rounded.
bool same_values(File const& file, TensorLocation const& weight, TensorLocation const& master,
                 std::int64_t offset) {
  std::int64_t const count = std::min(compared_values, weight.numel);
  std::vector<float> left(static_cast<std::size_t>(count)), right(left.size());
  std::vector<std::uint16_t> rounded(left.size());
  read_as_fp32(file, weight, 0, count, left.data());
  read_as_fp32(file, master, offset, count, right.data());
  auto const dtype = weight.type == ElementType::fp16 ? Dtype::fp16 : Dtype::bf16;
  if (weight.type == ElementType::fp16 || weight.type == ElementType::bf16) {
    from_fp32(right.data(), count, dtype, rounded.data());
    to_fp32(rounded.data(), count, dtype, right.data());
  }
  return left == right;
}

/// Which place of which group each tensor of the module has: all ways that keep the order of both,
/// one tensor after the other.
class Assignment {
 public:
  using Place =
      std::pair<int, std::int64_t>;  ///< group (-1: none, a frozen parameter) and position
  enum class Match { none, one, several };

  Assignment(File const& file, std::vector<Named> const& tensors, std::vector<Group> const& groups)
      : file_(file), tensors_(tensors), groups_(groups) {
    for (auto const& group : groups) needed_ += group.numel();
    left_.assign(tensors.size() + 1, 0);
    for (std::size_t i = tensors.size(); i-- > 0;)
      left_[i] = left_[i + 1] + tensors[i].second.numel;
  }

  Match run() {
    layers_.assign(1, {{std::vector<std::int64_t>(groups_.size(), 0), State{}}});
    std::size_t states = 1;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      extend(i);
      states += layers_.back().size();
      if (states > most_states) return Match::several;
    }
    std::vector<std::int64_t> ends;
    for (auto const& group : groups_) ends.push_back(group.end());
    auto const last = layers_.back().find(ends);
    if (last == layers_.back().end()) return Match::none;
    if (last->second.ways > 1) return Match::several;
    places.resize(tensors_.size());
    for (std::size_t i = tensors_.size(); i-- > 0;) {
      State const& state = layers_[i + 1].at(ends);
      places[i] = {state.group,
                   state.group < 0 ? 0 : state.from[static_cast<std::size_t>(state.group)]};
      ends = state.from;
    }
    return Match::one;
  }

  std::vector<Place> places;  ///< parallel to the tensors, when there is one way

 private:
  using Positions = std::vector<std::int64_t>;
  struct State {
    int ways = 1, group = -1;
    std::int64_t taken = 0;  ///< elements
    Positions from;
  };

  void extend(std::size_t i) {
    std::map<Positions, State> next;
    std::int64_t const numel = tensors_[i].second.numel;
    for (auto const& [positions, state] : layers_.back()) {
      for (std::size_t g = 0; g < groups_.size(); ++g)
        if (auto const to = fits(i, g, positions[g])) {
          auto moved = positions;
          moved[g] = *to;
          put(next, std::move(moved),
              {state.ways, static_cast<int>(g), state.taken + numel, positions});
        }
      if (left_[i + 1] >= needed_ - state.taken)
        put(next, positions, {state.ways, -1, state.taken, positions});
    }
    layers_.push_back(std::move(next));
  }

  static void put(std::map<Positions, State>& layer, Positions positions, State state) {
    auto const [it, is_new] = layer.emplace(std::move(positions), state);
    if (!is_new) it->second.ways = std::min(2, it->second.ways + state.ways);
  }

  /// The position behind this tensor in the group, if it can stand at @p position.
  std::optional<std::int64_t> fits(std::size_t i, std::size_t g, std::int64_t position) const {
    auto const& weight = tensors_[i].second;
    auto const& group = groups_[g];
    if (group.flat) {
      bool const there = weight.numel <= group.end() - position &&
                         same_values(file_, weight, *group.master_weights[0], position);
      return there ? std::optional(position + weight.numel) : std::nullopt;
    }
    if (position >= group.end()) return std::nullopt;
    auto const at = static_cast<std::size_t>(position);
    if (auto const* known = group.shape_source(at); known && known->shape != weight.shape)
      return std::nullopt;
    if (group.master_weights[at] && !same_values(file_, weight, *group.master_weights[at], 0))
      return std::nullopt;
    return position + 1;
  }

  File const& file_;
  std::vector<Named> const& tensors_;
  std::vector<Group> const& groups_;
  std::int64_t needed_ = 0;
  std::vector<std::int64_t> left_;  ///< elements from a tensor on
  std::vector<std::map<Positions, State>> layers_;
};

/// Parameters of the module: no buffers, and of tied tensors the first name.
std::vector<Named> parameters_of(ModelStates const& model) {
  std::set<std::string> const buffers(model.buffer_names.begin(), model.buffer_names.end());
  std::vector<Named> out;
  std::map<std::int64_t, std::size_t> by_place;
  for (auto const& [name, place] : model.module) {
    if (buffers.contains(name)) continue;
    auto const known = by_place.find(place.file_offset);
    if (place.numel > 0 && known != by_place.end() && out[known->second].second.same_as(place))
      continue;
    by_place.emplace(place.file_offset, out.size());
    out.emplace_back(name, place);
  }
  return out;
}

StateSource part_of(int file, TensorLocation const& place, std::int64_t offset,
                    std::int64_t numel) {
  auto source = whole(file, place);
  source.offset = offset;
  source.chunk = std::max<std::int64_t>(1, numel);
  return source;
}

SourceTensor tensor_at(int file, Named const& named, std::vector<Group> const& groups,
                       Assignment::Place place) {
  auto const& [name, weight] = named;
  SourceTensor tensor{
      name,         weight.shape,
      {},           place.first < 0 ? SourceTensor::Kind::frozen : SourceTensor::Kind::trained,
      weight.numel, {whole(file, weight)}};
  if (place.first < 0) return tensor;
  auto const& group = groups[static_cast<std::size_t>(place.first)];
  auto const index = group.flat ? 0 : static_cast<std::size_t>(place.second);
  std::int64_t const offset = group.flat ? place.second : 0;
  if (group.master_weights[index])
    tensor.states[0] = part_of(file, *group.master_weights[index], offset, weight.numel);
  for (auto const& place : group.states[index])
    tensor.states.push_back(part_of(file, place, offset, weight.numel));
  return tensor;
}

void read_scaler(TorchFile const& file, PickleValue optimizer, TrainingSource& source) {
  auto const dynamic = optimizer.find("dynamic_loss_scale");
  if (!dynamic || dynamic->kind() != Pickle::Kind::boolean || !dynamic->as_bool()) return;
  optim::LossScalerState scaler;
  scaler.scale = file.number(optimizer.at("cur_scale"));
  scaler.iteration = optimizer.at("cur_iter").as_int();
  if (auto const last = optimizer.find("last_overflow_iter")) scaler.last_overflow = last->as_int();
  scaler.hysteresis = 1;  // these wrappers lower the scale at the first overflow
  source.loss_scaler = scaler;
}

}  // namespace

TrainingSource read_plain(fs::path const& directory, Wanted wanted, CrcCheck check) {
  TrainingSource source;
  source.directory = directory;
  fs::path const path = directory / "mp_rank_00_model_states.pt";
  ModelStates const model = read_model_states(path, source, check);
  TESSERA_VALIDATE(model.groups.empty(), IoError, directory.string(),
                   " has no *_optim_states.pt, but its model states were saved with ZeRO; copy the "
                   "files of all ranks there");
  TorchFile const file(path);
  auto const optimizer = file.root().find("optimizer");
  auto const tensors = parameters_of(model);
  TESSERA_VALIDATE(!tensors.empty(), DataError, path.string(), " has no parameters");
  bool const has_state = optimizer && optimizer->is_dict() &&
                         (optimizer->find("state") || optimizer->find("optimizer_state_dict"));
  std::vector<Group> groups;
  if (has_state) groups = read_groups(file, *optimizer, source);
  Assignment assignment(file.file(), tensors, groups);
  auto const found = has_state ? assignment.run() : Assignment::Match::none;
  bool const needed = has_state && (wanted == Wanted::training_state ||
                                    std::any_of(groups.begin(), groups.end(), [](auto const& g) {
                                      return !g.master_weights.empty() && g.master_weights[0];
                                    }));
  TESSERA_VALIDATE(!needed || found != Assignment::Match::none, DataError, path.string(),
                   ": the optimizer's groups do not fit the module's parameters");
  TESSERA_VALIDATE(
      !needed || found != Assignment::Match::several, DataError, path.string(),
      ": without ZeRO the optimizer's state has no names, and more than one way of giving it the ",
      "names of the module fits (frozen parameters, several groups); import only the weights: "
      "zero-to-fp32, then import its directory");
  if (has_state) read_scaler(file, *optimizer, source);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (found == Assignment::Match::one)
      source.tensors.push_back(tensor_at(model.file, tensors[i], groups, assignment.places[i]));
    else
      source.tensors.push_back({tensors[i].first,
                                tensors[i].second.shape,
                                {},
                                SourceTensor::Kind::trained,
                                tensors[i].second.numel,
                                {whole(model.file, tensors[i].second)}});
  add_aliases(model, source);
  add_buffers(model, source);
  auto const ranks = file.root().find("dp_world_size");
  source.ranks =
      ranks ? static_cast<int>(std::clamp<std::int64_t>(ranks->as_int(), 1, 1'000'000)) : 1;
  source.format =
      concat("DeepSpeed without ZeRO, ", source.ranks, source.ranks == 1 ? " rank" : " ranks");
  return source;
}

}  // namespace tessera::checkpoint::detail
