#include "save/detail/commit.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <thread>

#include "format/detail/checksum.hpp"
#include "format/detail/file.hpp"
#include "interchange/detail/model_directory.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/median.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::int64_t data_bytes(SaveRequest const& request, StateLayers const& layers) {
  auto const plans = plans_of(request.plan, layers);
  std::int64_t bytes = 0;
  for (std::size_t k = 0; k < layers.size(); ++k)
    bytes += plans[k].parameter_count() * 4 * static_cast<std::int64_t>(layers[k].states.size());
  return bytes;
}

std::string const& name_of(SaveRequest const& request, zero::ShardExtent const& extent) {
  return request.units[position(extent.unit)]
      .parameters[static_cast<std::size_t>(extent.parameter)]
      .name;
}

ShardIdentity identity_of(SaveRequest const& request, Rank rank) {
  return {request.run_id, request.step, group_of(rank, request.plan.ranks(), request.file_starts),
          request.plan.ranks(), request.zero_stage};
}

/// Adds the counts of one rank's shard.
void add_nonfinite(SaveRequest const& request, Rank rank, WrittenShard const& shard,
                   StateLayers const& layers, NonFiniteTally& tally) {
  if (shard.nonfinite.empty()) return;
  auto const extents = layer_extents(request.plan, layers, rank);
  for (auto const& bad : shard.nonfinite) {
    auto const& [layer, extent] = extents[bad.extent];
    tally.add(name_of(request, extent), layers[layer].states[bad.state], bad.count);
  }
}

void check_finite(SaveRequest const& request, Rank rank, WrittenShard const& shard,
                  StateLayers const& layers) {
  if (request.nonfinite == NonFiniteState::record || shard.nonfinite.empty()) return;
  NonFiniteTally tally;
  add_nonfinite(request, rank, shard, layers, tally);
  throw ConfigError(concat("the checkpoint of step ", request.step,
                           " is not published because it is not finite: ", text_of(tally.list()),
                           "; training has diverged, or began with such values"));
}

template <class States>
WrittenShard write_rank_of(SaveRequest const& request, fs::path const& directory, Rank rank,
                           States const& states, StateLayers const& layers) {
  ShardIdentity const identity = identity_of(request, rank);
  fs::path const file = directory / shard_name(identity.group.index);
  if (shares_files(request))
    wait_until_visible(file, value(identity.group.first));
  else
    create_shard_structure(file, identity, request.plan, layers);
  WrittenShard shard = fill_shard(file, identity, request.plan, rank, states,
                                  checksum_chunk_for(data_bytes(request, layers)));
  check_finite(request, rank, shard, layers);
  return shard;
}

/// The tensors of every layer.
std::vector<std::vector<TensorRecord>> make_tensors(SaveRequest const& request,
                                                    StateLayers const& layers,
                                                    std::vector<WrittenShard> const& shards) {
  std::vector<std::vector<TensorRecord>> tensors(layers.size());
  std::vector<std::size_t> first_of_unit;
  for (std::size_t u = 0; u < request.units.size(); ++u) {
    auto const& unit = request.units[u];
    std::vector<int> owners;
    for (Rank const owner : request.plan.units()[u].owners) owners.push_back(value(owner));
    first_of_unit.push_back(tensors[0].size());
    for (auto const& p : unit.parameters)
      for (std::size_t k = 0; k < layers.size(); ++k)
        tensors[k].push_back({p.name,
                              zero::state_shape(p.shape, layers[k].extent),
                              k == 0 ? p.aliases : std::vector<std::string>(),
                              Dtype::fp32,
                              {},
                              owners});
  }
  for (auto const& group : rank_groups(request.plan.ranks(), request.file_starts))
    for (Rank rank = group.first; rank < group.end(); ++rank) {
      auto const extents = layer_extents(request.plan, layers, rank);
      auto const& written = shards[position(rank)].extents;
      for (std::size_t i = 0; i < extents.size(); ++i) {
        auto const& [layer, extent] = extents[i];
        auto const tensor =
            first_of_unit[position(extent.unit)] + static_cast<std::size_t>(extent.parameter);
        tensors[layer][tensor].extents.push_back({group.index, extent.parameter_offset.value(),
                                                  extent.numel, written[i],
                                                  group.count > 1 ? value(rank) : -1});
      }
    }
  return tensors;
}

Manifest make_manifest(SaveRequest const& request, StateLayers const& layers,
                       fs::path const& directory, std::vector<WrittenShard> const& shards) {
  Manifest m;
  m.directory = directory;
  m.run_id = request.run_id;
  m.created_utc = utc_timestamp();
  m.step = request.step;
  m.tokens = request.tokens;
  m.samples = request.samples;
  m.world_size = request.plan.ranks();
  m.zero_stage = request.zero_stage;
  m.model_config = request.model_config;
  m.resolved_config = request.resolved_config;
  m.trainer_state = request.trainer_state;
  m.versions = request.versions;
  m.frozen = request.frozen;
  m.checksum_chunk = checksum_chunk_for(data_bytes(request, layers));
  m.states = layers[0].states;
  m.skipped_in_a_row = request.skipped_in_a_row;
  NonFiniteTally tally;
  for (std::size_t rank = 0; rank < shards.size(); ++rank)
    add_nonfinite(request, Rank(static_cast<int>(rank)), shards[rank], layers, tally);
  m.nonfinite = tally.list();
  for (auto const& group : rank_groups(m.world_size, request.file_starts))
    m.shards.push_back({shard_name(group.index), shards[position(group.first)].bytes,
                        value(group.first), group.count});
  auto tensors = make_tensors(request, layers, shards);
  m.tensors = std::move(tensors[0]);
  for (std::size_t k = 1; k < layers.size(); ++k)
    m.reduced_states.push_back({layers[k].states[0], std::move(tensors[k])});
  return m;
}

bool is_trash(fs::path const& path) { return path.filename().string().starts_with(trash_prefix); }

fs::path unused_trash_name(fs::path const& directory) {
  std::error_code error;
  for (int count = 1;; ++count) {
    fs::path const trash =
        directory.parent_path() / concat(trash_prefix, directory.filename().string(), ".", count);
    if (!fs::exists(fs::symlink_status(trash, error))) return trash;
  }
}

/// Gives a directory a name that readers pass over, or leaves it where it is.
fs::path set_aside(fs::path const& directory) {
  if (is_trash(directory)) return directory;
  std::error_code error;
  fs::path const trash = unused_trash_name(directory);
  fs::rename(directory, trash, error);
  return error ? directory : trash;
}

void remove_with_warning(fs::path const& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  if (error)
    log::warning(concat("cannot remove ", directory.string(), ": ", error.message(),
                        "; it is tried again at the next save and start"));
}

bool is_model_alone(SaveRequest const& request) {
  return request.model_files && request.model_files->only_model;
}

/// Writes the model before the manifest: a directory with a manifest is complete.
void write_model(ModelFiles const& files, Manifest const& manifest) {
  constexpr std::int64_t largest = std::int64_t{1} << 30;
  write_model_directory(manifest, files.dtype);
  for (auto const& file : files.extra_files) {
    fs::path const copy = manifest.directory / companion_name(file);
    make_directories(copy.parent_path());
    write_file_atomically(copy, read_text(file, largest));
  }
}

/// The manifest gets its name when it and the view are durable. Both are flushed at the same time,
/// which the file system commits as one; the flush of the directory comes last.
void write_manifest(Manifest const& manifest, fs::path const& view) {
  PendingFile pending(manifest.file());
  auto view_is_durable = std::async(std::launch::async, [&] { File::open_write(view).sync(); });
  std::string const text = manifest_text(manifest);
  pending.file().write(text.data(), static_cast<std::int64_t>(text.size()), 0);
  pending.seal();
  view_is_durable.get();
  pending.publish();
}

/// Gives the finished directory its name. A checkpoint of the same step that exists is
/// replaced.
void move_into_place(fs::path const& temporary, fs::path const& final) {
  std::error_code ignored;
  if (!fs::exists(final, ignored)) {
    rename_path(temporary, final);
  } else if (exchange_paths(temporary, final)) {
    set_aside(temporary);
  } else {
    // between these two renames the new checkpoint is found by remove_unfinished_saves, which
    // finishes the second
    fs::path const aside =
        final.parent_path() / concat(trash_prefix, final.filename().string(), ".replaced");
    fs::remove_all(aside, ignored);
    rename_path(final, aside);
    rename_path(temporary, final);
  }
  flush_directory(final.parent_path());
}

}  // namespace

void check_units(SaveRequest const& request) {
  (void)rank_groups(request.plan.ranks(), request.file_starts);
  auto const& units = request.plan.units();
  TESSERA_VALIDATE(request.units.size() == units.size(), InternalError, "the plan has ",
                   units.size(), " units, the model ", request.units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    TESSERA_VALIDATE(request.units[u].parameters.size() == units[u].parameters.size(),
                     InternalError, "unit ", units[u].name,
                     " has other parameters in the plan than in the model");
    for (auto const& slot : units[u].parameters)
      TESSERA_VALIDATE(slot.name.find('/') == std::string::npos, InternalError, "parameter name ",
                       slot.name, " has a '/'");
  }
}

void check_request(SaveRequest const& request, StateViews const& states) {
  TESSERA_VALIDATE(request.step >= 0 && !states.empty(), InternalError, "nothing to save at step ",
                   request.step);
  check_units(request);
  for (auto const& state : states) {
    TESSERA_VALIDATE(state.unit_shards.size() == request.units.size(), InternalError, "state ",
                     state.name, " has ", state.unit_shards.size(), " unit shards, the plan ",
                     request.units.size());
  }
  (void)layers_of(states);
}

std::int64_t bytes_needed(SaveRequest const& request, StateLayers const& layers) {
  std::int64_t states = 0;
  for (auto const& layer : layers) states += static_cast<std::int64_t>(layer.states.size());
  // page alignment, HDF5 metadata, manifest and view come on top of the numbers: 16 KiB a tensor of
  // each rank is ample
  std::int64_t extents = 0;
  for (auto const& unit : request.plan.units())
    extents += static_cast<std::int64_t>(unit.parameters.size()) + request.plan.ranks();
  std::int64_t const model =
      request.model_files ? request.plan.parameter_count() *
                                static_cast<std::int64_t>(size_of(request.model_files->dtype))
                          : 0;
  return data_bytes(request, layers) + extents * states * 16384 + model;
}

fs::path prepare(SaveRequest const& request, StateLayers const& layers) {
  make_directories(request.directory);
  std::int64_t const needed = bytes_needed(request, layers);
  std::int64_t const free = free_bytes(request.directory);
  TESSERA_VALIDATE(free >= needed, IoError, "the checkpoint of step ", request.step, " needs ",
                   human_bytes(needed), " in ", request.directory.string(), ", but ",
                   human_bytes(free),
                   " are free; remove old checkpoints, keep fewer (save_total_limit) or use "
                   "another output directory");
  for (int attempt = 1;; ++attempt) {
    fs::path const directory =
        request.directory / concat(step_name(request.step), ".tmp.", attempt);
    if (::mkdir(directory.c_str(), 0777) == 0) return directory;
    TESSERA_VALIDATE(errno == EEXIST && attempt < 10000, IoError,
                     with_errno("cannot create directory " + directory.string(), errno));
  }
}

void wait_until_visible(fs::path const& path, int maker) {
  auto const deadline = Clock::now() + std::chrono::seconds(30);
  std::error_code error;
  while (!fs::exists(path, error)) {
    TESSERA_VALIDATE(
        Clock::now() < deadline, IoError, path.string(), " made by rank ", maker,
        " is not visible on host ", host_name(),
        " after 30 s; the output directory must be on a file system that all nodes share");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool shares_files(SaveRequest const& request) {
  return !request.file_starts.empty() &&
         static_cast<int>(request.file_starts.size()) < request.plan.ranks();
}

void create_structure(SaveRequest const& request, fs::path const& directory, Rank rank,
                      StateLayers const& layers) {
  ShardIdentity const identity = identity_of(request, rank);
  if (identity.group.first == rank)
    create_shard_structure(directory / shard_name(identity.group.index), identity, request.plan,
                           layers);
}

WrittenShard write_rank(SaveRequest const& request, fs::path const& directory, Rank rank,
                        StateViews const& states) {
  return write_rank_of(request, directory, rank, states, layers_of(states));
}
WrittenShard write_rank(SaveRequest const& request, fs::path const& directory, Rank rank,
                        StreamedStates const& states) {
  return write_rank_of(request, directory, rank, states,
                       {{optim::Extent::elementwise, states.names}});
}

std::vector<SlowWriter> slow_writers(std::vector<WrittenShard> const& shards) {
  std::vector<SlowWriter> out;
  if (shards.size() < 2) return out;
  std::vector<std::int64_t> times;
  for (auto const& shard : shards) times.push_back(shard.microseconds);
  auto const others = medians_of_others(times);
  for (std::size_t rank = 0; rank < times.size(); ++rank)
    if (times[rank] >= 2 * others[rank] && times[rank] >= others[rank] + 500'000)
      out.push_back({static_cast<int>(rank), 1e-6 * static_cast<double>(times[rank]),
                     1e-6 * static_cast<double>(others[rank])});
  return out;
}

SavedCheckpoint publish(SaveRequest const& request, StateLayers const& layers,
                        fs::path const& temporary, std::vector<WrittenShard> const& shards) {
  Manifest const manifest = make_manifest(request, layers, temporary, shards);
  if (request.model_files) write_model(*request.model_files, manifest);
  if (is_model_alone(request)) {
    for (auto const& shard : manifest.shards) fs::remove(temporary / shard.file);
    flush_directory(temporary);
  } else {
    fs::path const view = temporary / "view.h5";
    write_view(view, manifest);
    write_manifest(manifest, view);
  }
  SavedCheckpoint saved;
  saved.nonfinite = *manifest.nonfinite;
  saved.slow_writers = slow_writers(shards);
  for (auto const& entry : fs::directory_iterator(temporary))
    saved.bytes += static_cast<std::int64_t>(entry.file_size());
  saved.directory = request.directory / step_name(request.step);
  try {
    move_into_place(temporary, saved.directory);
    if (!is_model_alone(request))
      write_file_atomically(request.directory / "latest", step_name(request.step) + "\n");
  } catch (IoError const& e) {
    std::error_code error;
    bool const moved = !fs::exists(temporary, error);
    throw IoError(
        concat(e.what(), moved ? concat("; ", saved.directory.string(), " itself is complete")
                               : std::string()));
  }
  return saved;
}

std::string manifest_of(SaveRequest const& request, StateLayers const& layers,
                        fs::path const& directory, std::vector<WrittenShard> const& shards) {
  return manifest_text(make_manifest(request, layers, directory, shards));
}

std::vector<std::string> prune(SaveRequest const& request) {
  std::vector<std::string> pruned;
  if (request.keep <= 0) return pruned;
  bool const models = is_model_alone(request);
  auto listed = list_checkpoints(request.directory);
  std::reverse(listed.begin(), listed.end());
  RetentionCount retention(request.keep);
  for (auto const& one : listed) {
    if (one.step > request.step || !(models ? holds_only_model(one.directory) : one.is_complete))
      continue;
    if (retention.keeps(one) || one.is_latest || one.step == request.protected_step) continue;
    set_aside(one.directory);
    pruned.push_back(one.name);
  }
  std::reverse(pruned.begin(), pruned.end());
  return pruned;
}

void remove_trash(fs::path const& checkpoints) {
  std::error_code error;
  std::vector<fs::path> trash;
  for (fs::directory_iterator it(checkpoints, error), end; !error && it != end; it.increment(error))
    if (is_trash(it->path())) trash.push_back(it->path());
  for (auto const& one : trash) remove_with_warning(one);
}

void discard(fs::path const& directory) { remove_with_warning(set_aside(directory)); }

std::function<void()> undo(fs::path const& temporary, bool mine) {
  return [temporary, mine] {
    std::error_code error;
    if (!mine) return;
    if (fs::exists(temporary, error)) discard(temporary);
    remove_trash(temporary.parent_path());  // what it had replaced before it failed
  };
}

}  // namespace tessera::checkpoint::detail
