#include "interchange/detail/training_source.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "format/detail/text.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {

int FileSet::add(std::filesystem::path const& path) {
  paths_.push_back(path);
  files_.emplace_back();
  return static_cast<int>(paths_.size()) - 1;
}

File const& FileSet::open(int index) {
  auto& file = files_[static_cast<std::size_t>(index)];
  if (file.is_open()) return file;
  if (most_open_ == 0) {
    // leaves room for what else the process opens
    rlimit limit = {};
    bool const known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    most_open_ = known ? std::clamp<std::size_t>(limit.rlim_cur, 64, 8192) / 2 : 4096;
  }
  if (open_ >= most_open_) {
    for (auto& other : files_) other = File();
    open_ = 0;
  }
  file = File::open_read(path(index));
  ++open_;
  return file;
}

void FlatRuns::add(int file, TensorPlace place) {
  std::int64_t const end = numel() + place.numel;
  runs_.push_back({file, std::move(place)});
  ends_.push_back(end);
}

void FlatRuns::read(FileSet& files, std::int64_t first, std::int64_t numel, float* out) const {
  auto run =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  for (; numel > 0; ++run) {
    TESSERA_EXPECT(run < runs_.size());
    auto const& place = runs_[run].place;
    std::int64_t const skip = first - (ends_[run] - place.numel),
                       count = std::min(numel, place.numel - skip);
    read_as_fp32(files.open(runs_[run].file), place, skip, count, out);
    first += count, numel -= count, out += count;
  }
}

void StateSource::read(FileSet& files, std::int64_t first, std::int64_t numel, float* out) const {
  if (!parts) {
    std::fill(out, out + numel, 0.0f);
    return;
  }
  while (numel > 0) {
    std::int64_t const inside = first % chunk, count = std::min(numel, chunk - inside);
    (*parts)[static_cast<std::size_t>(first / chunk)].read(files, offset + inside, count, out);
    first += count, numel -= count, out += count;
  }
}

StateSource whole(int file, TensorPlace const& place) {
  auto parts = std::make_shared<std::vector<FlatRuns>>(1);
  (*parts)[0].add(file, place);
  return {std::move(parts), 0, std::max<std::int64_t>(1, place.numel)};
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

std::vector<std::pair<std::string, TensorPlace>> read_tensors(TorchFile const& file,
                                                              PickleValue dict) {
  std::vector<std::pair<std::string, TensorPlace>> out;
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
                                {whole(model.file, place), {}, {}}});
}

/// By `shared_params`, and by what lies at the same place in the module's state.
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
  std::unordered_map<std::int64_t, std::pair<std::string, TensorPlace const*>> by_place;
  for (auto const& [name, place] : model.module)
    if (place.numel > 0 && index.contains(name))
      by_place.emplace(place.file_offset, std::pair(name, &place));
  for (auto const& [name, place] : model.module)
    if (auto const it = by_place.find(place.file_offset);
        place.numel > 0 && it != by_place.end() && place.same_as(*it->second.second))
      add(name, it->second.first);
}

}  // namespace tessera::checkpoint::detail
