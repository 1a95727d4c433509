#include "interchange/detail/deepspeed_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <regex>
#include <set>

#include "interchange/detail/deepspeed_states.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

struct RankFiles {
  std::map<int, fs::path> optim;  ///< by data-parallel rank
  bool model_parallel = false, experts = false;
};

RankFiles list_ranks(fs::path const& directory) {
  RankFiles out;
  for (auto const& entry : entries_of(directory)) {
    std::string const name = entry.path().filename().string();
    std::smatch match;
    if (name.rfind("expp_rank_", 0) == 0 ||
        (name.rfind("layer_", 0) == 0 && name.find("_expert_") != std::string::npos))
      out.experts = true;
    if (!std::regex_match(name, match, optimizer_file_pattern())) continue;
    if (std::stoi(match[2].str()) != 0) {
      out.model_parallel = true;
      continue;
    }
    int const rank = std::stoi(match[1].str());
    TESSERA_VALIDATE(out.optim.emplace(rank, entry.path()).second, DataError, directory.string(),
                     " has two optimizer files of rank ", rank, ": ",
                     out.optim[rank].filename().string(), " and ", name, "; keep one of them");
  }
  return out;
}

/// Written without ZeRO: one file of weights and optimizer, the same on all ranks.
bool is_plain(fs::path const& directory) {
  return path_exists(directory / "mp_rank_00_model_states.pt");
}

bool has_states(fs::path const& directory) {
  if (!directory_exists(directory)) return false;
  if (is_universal(directory)) return true;
  auto const ranks = list_ranks(directory);
  return !ranks.optim.empty() || ranks.model_parallel || is_plain(directory);
}

std::string first_line(fs::path const& file) {
  std::string text = read_text(file, 4096);
  text.erase(std::min(text.find_first_of("\r\n"), text.size()));
  return text;
}

/// The number at the end of "global_step100"; -1: none.
std::int64_t number_of(std::string const& tag) {
  auto const digits = tag.find_last_not_of("0123456789") + 1;
  std::int64_t number = -1;
  std::from_chars(tag.data() + digits, tag.data() + tag.size(), number);
  return number;
}

/// Directories with states, by the numbers of their names. Other directories may be closed.
std::vector<std::string> tags_in(fs::path const& directory) {
  std::vector<std::string> tags;
  std::error_code error;
  for (auto const& entry : entries_of(directory)) {
    try {
      if (entry.is_directory(error) && has_states(entry.path()))
        tags.push_back(entry.path().filename().string());
    } catch (IoError const&) {
      continue;
    }
  }
  std::sort(tags.begin(), tags.end(), [](auto const& a, auto const& b) {
    return std::pair(number_of(a), a) < std::pair(number_of(b), b);
  });
  return tags;
}

/// All ranks' files, and that they belong together.
std::vector<RankStates> read_ranks(fs::path const& directory, std::map<int, fs::path> const& paths,
                                   Wanted wanted, CrcCheck check) {
  int next = 0;
  for (auto const& [rank, path] : paths)
    TESSERA_VALIDATE(rank == next++, DataError, directory.string(),
                     " has no optimizer file of rank ", next - 1,
                     "; copy the files of all ranks into one directory");
  std::vector<RankStates> ranks;
  for (auto const& [rank, path] : paths) {
    ranks.push_back(read_rank(path, wanted, check));
    auto const& one = ranks.back();
    for (auto const count : one.partition_count)
      TESSERA_VALIDATE(count == static_cast<std::int64_t>(paths.size()), DataError, path.string(),
                       " is one of ", count, " partitions, but ", paths.size(),
                       " optimizer files are in ", directory.string(),
                       "; copy the files of all ranks of one save into one directory");
    TESSERA_VALIDATE(one.stage == ranks[0].stage && one.flat[0].size() == ranks[0].flat[0].size() &&
                         one.paddings == ranks[0].paddings &&
                         one.optimizer_steps == ranks[0].optimizer_steps,
                     DataError, path.string(), " (stage ", one.stage, ", ", one.flat[0].size(),
                     " groups, optimizer step ", one.optimizer_steps,
                     ") does not belong to the file of rank 0 (stage ", ranks[0].stage, ", ",
                     ranks[0].flat[0].size(), " groups, optimizer step ", ranks[0].optimizer_steps,
                     "); the files are of different saves");
  }
  for (auto& rank : ranks) add_states(rank, ranks[0].names, rank.flat[0].size());
  for (std::size_t r = 0; r < ranks.size(); ++r)
    TESSERA_VALIDATE(ranks[r].names == ranks[0].names, DataError, directory.string(), ": rank ", r,
                     " has other optimizer states than rank 0; the files are of different saves");
  return ranks;
}

using Parts = std::shared_ptr<std::vector<FlatRuns>>;

/// Stages 1 and 2: a group is one flat buffer, cut into one partition per rank; the partitions of
/// all ranks in order are the buffer. Padding is at its end only (in the files of the master
/// weights it is cut off), and after parameters with parameter_alignment.
void place_flat_groups(ModelStates const& model, std::vector<RankStates> const& ranks,
                       std::vector<int> const& files, TrainingSource& source) {
  std::size_t const groups = ranks[0].flat[0].size();
  TESSERA_VALIDATE(model.groups.size() == groups, DataError, source.directory.string(),
                   ": param_shapes has ", model.groups.size(), " groups, the optimizer files have ",
                   groups, "; the files are of different saves");
  auto const world = static_cast<std::int64_t>(ranks.size());
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<Parts> parts(ranks[0].names.size());
    for (std::size_t s = 0; s < parts.size(); ++s) {
      auto flat = std::make_shared<std::vector<FlatRuns>>(1);
      for (std::size_t r = 0; r < ranks.size(); ++r)
        if (g < ranks[r].flat[s].size()) (*flat)[0].add(files[r], ranks[r].flat[s][g]);
      if ((*flat)[0].numel() > 0) parts[s] = flat;
    }
    bool const padded = !ranks[0].paddings.empty();
    TESSERA_VALIDATE(
        !padded || (ranks[0].paddings.size() == groups &&
                    ranks[0].paddings[g].size() == model.groups[g].size()),
        DataError, source.directory.string(),
        ": param_alignment_paddings does not fit param_shapes; the files are of different saves");
    std::int64_t at = 0;
    for (std::size_t p = 0; p < model.groups[g].size(); ++p) {
      auto const& shape = model.groups[g][p];
      SourceTensor tensor{shape.name,  shape.shape, {}, SourceTensor::Kind::trained,
                          shape.numel, {}};
      for (std::size_t s = 0; s < parts.size(); ++s)
        tensor.states.push_back({parts[s], at, std::max<std::int64_t>(1, shape.numel)});
      source.tensors.push_back(std::move(tensor));
      std::int64_t const padding = padded ? ranks[0].paddings[g][p] : 0;
      bool const fits = padding >= 0 && !__builtin_add_overflow(at, shape.numel, &at) &&
                        !__builtin_add_overflow(at, padding, &at);
      TESSERA_VALIDATE(fits, DataError, source.directory.string(), ": group ", g,
                       " of param_shapes is too large");
    }
    std::int64_t const available = parts[0] ? (*parts[0])[0].numel() : 0;
    TESSERA_VALIDATE(available >= at && round_up(available, 2 * world) == round_up(at, 2 * world),
                     DataError, source.directory.string(), ": the parameters of group ", g,
                     " have ", at, " elements, its partitions ", available,
                     "; the files are of different saves");
    for (std::size_t s = 1; s < parts.size(); ++s)
      TESSERA_VALIDATE(!parts[s] || (*parts[s])[0].numel() >= available, DataError,
                       source.directory.string(), ": group ", g, " has ", available,
                       " master weights but ", (*parts[s])[0].numel(), " elements of ",
                       ranks[0].names[s], "; the files are of different saves");
  }
}

/// Stage 3: every parameter of n elements is cut into ceil(n / ranks) elements per rank; a rank's
/// extents of all parameters follow each other in its sub-groups, and may cross from one
/// into the next.
void place_partitions(ModelStates const& model, std::vector<RankStates> const& ranks,
                      std::vector<int> const& files, TrainingSource& source) {
  std::vector<Parts> parts(ranks[0].names.size());
  for (std::size_t s = 0; s < parts.size(); ++s) {
    auto flat = std::make_shared<std::vector<FlatRuns>>(ranks.size());
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (auto const& place : ranks[r].flat[s]) (*flat)[r].add(files[r], place);
    if ((*flat)[0].numel() > 0) parts[s] = flat;
  }
  auto const world = static_cast<std::int64_t>(ranks.size());
  std::int64_t at = 0;
  for (auto const& group : model.groups)
    for (auto const& shape : group) {
      std::int64_t const chunk = ceil_divide(shape.numel, world);
      SourceTensor tensor{shape.name,  shape.shape, {}, SourceTensor::Kind::trained,
                          shape.numel, {}};
      for (std::size_t s = 0; s < parts.size(); ++s)
        tensor.states.push_back({parts[s], at, std::max<std::int64_t>(1, chunk)});
      source.tensors.push_back(std::move(tensor));
      TESSERA_VALIDATE(!__builtin_add_overflow(at, chunk, &at), DataError,
                       source.directory.string(), ": param_shapes is too large");
    }
  for (std::size_t s = 0; s < parts.size(); ++s)
    for (std::size_t r = 0; parts[s] && r < ranks.size(); ++r)
      TESSERA_VALIDATE((*parts[s])[r].numel() == at, DataError,
                       source.files.path(files[r]).string(), " has ", (*parts[s])[r].numel(),
                       " elements of ", ranks[0].names[s], ", the parameters need ", at,
                       " on every rank; the files are of different saves");
}

/// Stages 1 and 2 keep frozen parameters unpartitioned in the module's state: all entries that are
/// neither trained, shared nor a buffer.
void add_frozen_whole(ModelStates const& model, TrainingSource& source) {
  std::set<std::string> known(model.buffer_names.begin(), model.buffer_names.end());
  for (auto const& tensor : source.tensors) {
    known.insert(tensor.name);
    known.insert(tensor.aliases.begin(), tensor.aliases.end());
  }
  std::set<std::string> shared;
  for (auto const& [alias, owner] : model.shared) shared.insert(alias);
  for (auto const& [name, place] : model.module)
    if (!known.contains(name) && !shared.contains(name))
      source.tensors.push_back({name,
                                place.shape,
                                {},
                                SourceTensor::Kind::frozen,
                                place.numel,
                                {whole(model.file, place)}});
}

/// Stage 3 keeps them cut like the others, rank r's extent in its model_states file.
void add_frozen_fragments(ModelStates const& model, fs::path const& directory, std::size_t ranks,
                          TrainingSource& source, CrcCheck check) {
  if (model.frozen.empty()) return;
  std::vector<ModelStates> all{model};
  for (std::size_t r = 1; r < ranks; ++r) {
    TrainingSource ignored;
    fs::path const path = directory / fmt::format("zero_pp_rank_{}_mp_rank_00_model_states.pt", r);
    all.push_back(read_model_states(path, ignored, check));
    all.back().file = source.files.add(path);
  }
  for (auto const& shape : model.frozen) {
    auto parts = std::make_shared<std::vector<FlatRuns>>(ranks);
    std::int64_t const chunk = ceil_divide(shape.numel, static_cast<std::int64_t>(ranks));
    for (std::size_t r = 0; r < ranks; ++r) {
      auto const& fragments = all[r].frozen_fragments;
      auto const it = std::find_if(fragments.begin(), fragments.end(),
                                   [&](auto const& f) { return f.first == shape.name; });
      TESSERA_VALIDATE(it != fragments.end() && it->second.numel >= chunk, DataError,
                       source.files.path(all[r].file).string(), " lacks ", chunk,
                       " elements of the frozen parameter ", shape.name);
      (*parts)[r].add(all[r].file, it->second);
    }
    source.tensors.push_back(
        {shape.name,
         shape.shape,
         {},
         SourceTensor::Kind::frozen,
         shape.numel,
         {StateSource{std::move(parts), 0, std::max<std::int64_t>(1, chunk)}}});
  }
}

void check_names(TrainingSource const& source) {
  std::set<std::string> names;
  for (auto const& tensor : source.tensors)
    TESSERA_VALIDATE(!tensor.name.empty() && names.insert(tensor.name).second, DataError,
                     source.directory.string(), ": parameter '", tensor.name, "' is listed twice");
}

}  // namespace

std::optional<fs::path> find_deepspeed(fs::path const& given, std::string const& tag,
                                       WhenDamaged when_damaged) {
  if (!directory_exists(given)) return std::nullopt;
  if (!tag.empty()) {
    TESSERA_VALIDATE(is_plain_name(tag), UsageError, "'", tag,
                     "' is no tag; give the name of a directory in ", given.string());
    return has_states(given / tag) ? std::optional(given / tag) : std::nullopt;
  }
  if (has_states(given)) return given;
  std::string missing;
  for (auto const* pointer : {"latest", "latest_universal"}) {
    if (!path_exists(given / pointer)) continue;
    std::string const name = first_line(given / pointer);
    if (is_plain_name(name) && has_states(given / name)) return given / name;
    if (missing.empty()) missing = concat("`", pointer, "` names '", name, "'");
  }
  auto const tags = tags_in(given);
  if (tags.empty()) return std::nullopt;
  if (!missing.empty()) {
    TESSERA_VALIDATE(when_damaged == WhenDamaged::use_older, DataError, given.string(), ": ",
                     missing, ", which holds no DeepSpeed checkpoint; it has ", join(tags),
                     ": name one with --tag, or take the newest with --allow_older");
    log::warning(concat(given.string(), ": ", missing, ", which holds no DeepSpeed checkpoint; ",
                        tags.back(), " is used"));
    return given / tags.back();
  }
  TESSERA_VALIDATE(tags.size() == 1, IoError, given.string(),
                   " has no 'latest' and several checkpoints: ", join(tags),
                   "; say which with --tag");
  return given / tags[0];
}

bool holds_deepspeed(fs::path const& given) {
  return directory_exists(given) && (has_states(given) || !tags_in(given).empty());
}

TrainingSource read_deepspeed(fs::path const& directory, Wanted wanted, CrcCheck check) {
  if (is_universal(directory)) return read_universal(directory, check);
  auto const listed = list_ranks(directory);
  TESSERA_VALIDATE(
      !listed.model_parallel, DataError, directory.string(),
      " is a model-parallel checkpoint (mp_rank_01 and higher); only mp_rank_00 is read: ",
      "convert it with DeepSpeed's ds_to_universal.py first");
  TESSERA_VALIDATE(!listed.experts, DataError, directory.string(),
                   " has files of experts (mixture of experts); such checkpoints are not read");
  if (listed.optim.empty() && is_plain(directory)) return read_plain(directory, wanted, check);
  TESSERA_VALIDATE(!listed.optim.empty(), IoError, directory.string(),
                   " has no *_optim_states.pt; give a checkpoint of ZeRO stage 1, 2 or 3");
  TrainingSource source;
  source.directory = directory;
  auto const ranks = read_ranks(directory, listed.optim, wanted, check);
  bool const stage3 = ranks[0].stage == 3;
  fs::path const model_file = directory / (stage3 ? "zero_pp_rank_0_mp_rank_00_model_states.pt"
                                                  : "mp_rank_00_model_states.pt");
  ModelStates const model = read_model_states(model_file, source, check);
  TESSERA_VALIDATE(
      !model.groups.empty(), DataError, model_file.string(),
      " has no param_shapes; it was written without ZeRO or by a DeepSpeed before 0.4");
  std::vector<int> files;
  for (auto const& [rank, path] : listed.optim) files.push_back(source.files.add(path));
  if (stage3)
    place_partitions(model, ranks, files, source);
  else
    place_flat_groups(model, ranks, files, source);
  add_aliases(model, source);
  if (stage3)
    add_frozen_fragments(model, directory, ranks.size(), source, check);
  else
    add_frozen_whole(model, source);
  add_buffers(model, source);
  add_aliases(model, source);
  check_names(source);
  source.state_names = ranks[0].names;
  source.has_stateless_optimizer = ranks[0].has_stateless_optimizer;
  source.stage = ranks[0].stage;
  source.ranks = static_cast<int>(ranks.size());
  source.optimizer_steps = ranks[0].optimizer_steps;
  source.loss_scaler = ranks[0].scaler;
  source.format = fmt::format("DeepSpeed ZeRO stage {} of {} rank{}", source.stage, source.ranks,
                              source.ranks == 1 ? "" : "s");
  return source;
}

namespace {

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
