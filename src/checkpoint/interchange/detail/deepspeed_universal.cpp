#include "interchange/detail/deepspeed_reader.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "interchange/detail/deepspeed_states.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {

namespace {

namespace fs = std::filesystem;

/// A parameter's file: {"param": tensor, ...} from stages 1 and 2, a flat tensor from stage 3.
TensorLocation universal_tensor(TorchFile const& file) {
  PickleValue const root = file.root();
  return file.tensor(root.is_dict() ? root.at("param") : root);
}

struct UniversalShapes {
  std::map<std::string, std::vector<std::int64_t>> by_name;
  bool is_known(std::string const& name) const { return by_name.contains(name); }
};

/// "fp32" and the states of the optimizer whose files the parameters' directories have.
std::vector<std::string> universal_states(std::vector<fs::path> const& parameters) {
  std::set<std::string> known;
  for (auto const& info : optim::optimizers()) known.insert(info.states.begin(), info.states.end());
  std::vector<std::string> present, names{optim::master_weights_name};
  for (auto const& name : known)
    if (std::ranges::any_of(parameters, [&](fs::path const& directory) {
          std::error_code error;
          return fs::exists(directory / concat(name, ".pt"), error);
        }))
      present.push_back(name);
  if (present.empty()) return names;
  auto const states = matching_states(present);
  names.insert(names.end(), states.begin(), states.end());
  return names;
}

void read_universal_parameter(fs::path const& directory, UniversalShapes const& shapes,
                              TrainingSource& source, CrcCheck check) {
  SourceTensor tensor;
  tensor.name = directory.filename().string();
  std::error_code error;
  if (source.state_names.size() > 1) tensor.kind = SourceTensor::Kind::frozen;
  tensor.states.resize(source.state_names.size());
  for (std::size_t s = 0; s < source.state_names.size(); ++s) {
    fs::path const path = directory / concat(source.state_names[s], ".pt");
    if (s > 0 && !fs::exists(path, error)) continue;
    if (s > 0) tensor.kind = SourceTensor::Kind::trained;
    TorchFile const file(path, check);
    TensorLocation const place = universal_tensor(file);
    if (s == 0) {
      auto const known = shapes.by_name.find(tensor.name);
      tensor.shape = known == shapes.by_name.end() ? place.shape : known->second;
      tensor.numel = numel_of(tensor.shape, file.root());
    }
    TESSERA_VALIDATE(place.numel == tensor.numel, DataError, path.string(), " has ", place.numel,
                     " elements, the parameter ", tensor.numel,
                     "; vocabulary padding and tensor parallelism are not read");
    tensor.states[s] = whole(source.files.add(path), place);
  }
  if (fs::exists(directory / "step.pt", error)) {
    TorchFile const file(directory / "step.pt", check);
    double const steps = file.number(file.root());
    TESSERA_VALIDATE(steps >= 0 && steps < 9e15, DataError, file.path().string(), " says ", steps,
                     " steps");
    source.optimizer_steps = std::max(source.optimizer_steps, static_cast<std::int64_t>(steps));
  }
  source.tensors.push_back(std::move(tensor));
}

/// The optimizer's step from wherever the versions of ds_to_universal put it, and the loss scaler.
void read_universal_common(fs::path const& path, TrainingSource& source, CrcCheck check) {
  TorchFile const file(path, check);
  PickleValue const root = file.root();
  source.loss_scaler = read_loss_scaler(file, root.find("loss_scaler"));
  auto const take = [&](std::optional<PickleValue> step) {
    double const steps = step && !step->is_none() ? file.number(*step) : 0;
    if (steps > 0 && steps < 9e15)
      source.optimizer_steps = std::max(source.optimizer_steps, static_cast<std::int64_t>(steps));
  };
  if (auto const inner = root.find("optimizer_state_dict"); inner && inner->is_dict())
    if (auto const states = inner->find("state"); states && states->is_dict())
      for (std::size_t i = 0; i < states->pairs(); ++i) take(states->pair_value(i).find("step"));
  if (auto const groups = root.find("param_groups"); groups && groups->is_sequence())
    for (std::size_t g = 0; g < groups->size(); ++g) {
      take((*groups)[g].find("step"));
      source.has_stateless_optimizer |= keeps_no_state(file, (*groups)[g]);
    }
}

}  // namespace

bool is_universal(fs::path const& directory) {
  std::error_code error;
  if (!fs::is_directory(directory / "zero", error)) return false;
  return fs::exists(directory / "mp_rank_00_model_states.pt", error) ||
         fs::exists(directory / "zero_pp_rank_0_mp_rank_00_model_states.pt", error);
}

TrainingSource read_universal(fs::path const& directory, CrcCheck check) {
  TrainingSource source;
  source.directory = directory;
  std::error_code error;
  fs::path model_file = directory / "mp_rank_00_model_states.pt";
  if (!fs::exists(model_file, error))
    model_file = directory / "zero_pp_rank_0_mp_rank_00_model_states.pt";
  ModelStates const model = read_model_states(model_file, source, check);
  UniversalShapes shapes;
  for (auto const& group : model.groups)
    for (auto const& shape : group) shapes.by_name.emplace(shape.name, shape.shape);
  std::set<std::string> aliases;
  for (auto const& [alias, owner] : model.shared) aliases.insert(alias);
  std::vector<fs::path> parameters;
  for (auto const& entry : fs::directory_iterator(directory / "zero", error))
    if (entry.is_directory(error) && !aliases.contains(entry.path().filename().string()))
      parameters.push_back(entry.path());
  std::sort(parameters.begin(), parameters.end());
  TESSERA_VALIDATE(!parameters.empty(), DataError, (directory / "zero").string(),
                   " has no parameters");
  source.state_names = universal_states(parameters);
  for (auto const& path : parameters) read_universal_parameter(path, shapes, source, check);
  std::set<std::string> const found = [&] {
    std::set<std::string> names;
    for (auto const& path : parameters) names.insert(path.filename().string());
    return names;
  }();
  for (auto const& [name, shape] : shapes.by_name)
    TESSERA_VALIDATE(found.contains(name), DataError, (directory / "zero").string(),
                     " has no directory of parameter ", name);
  if (fs::exists(directory / "zero/optimizer_state.pt", error))
    read_universal_common(directory / "zero/optimizer_state.pt", source, check);
  add_aliases(model, source);
  source.stage = fs::exists(directory / "mp_rank_00_model_states.pt", error) ? 2 : 3;
  source.format = "DeepSpeed universal checkpoint";
  return source;
}

}  // namespace tessera::checkpoint::detail
