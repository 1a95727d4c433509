#include "interchange/detail/deepspeed_model_states.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "format/detail/text.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {

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
