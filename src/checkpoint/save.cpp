#include "tessera/checkpoint/save.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cerrno>
#include <thread>

#include "detail/checksum.hpp"
#include "detail/file.hpp"
#include "detail/shard_file.hpp"
#include "detail/together.hpp"
#include "tessera/checkpoint/directory.hpp"
#include "tessera/checkpoint/manifest.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr char trash_prefix[] = ".trash.";

std::int64_t data_bytes(SaveRequest const& request, std::size_t states) {
  return request.plan.parameter_count() * 4 * static_cast<std::int64_t>(states);
}

std::vector<std::string> names_of(StateViews const& states) {
  std::vector<std::string> names;
  for (auto const& state : states) names.push_back(state.name);
  return names;
}

void check_units(SaveRequest const& request) {
  auto const& units = request.plan.units();
  TESSERA_VALIDATE(request.units.size() == units.size(), InternalError, "the plan has ", units.size(), " units, the model ", request.units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    TESSERA_VALIDATE(request.units[u].parameters.size() == units[u].parameters.size(), InternalError, "unit ", units[u].name,
                     " has other parameters in the plan than in the model");
    for (auto const& slot : units[u].parameters)
      TESSERA_VALIDATE(slot.name.find('/') == std::string::npos, InternalError, "parameter name ", slot.name, " has a '/'");
  }
}

void check_request(SaveRequest const& request, StateViews const& states) {
  TESSERA_VALIDATE(request.step >= 0 && !states.empty(), InternalError, "nothing to save at step ", request.step);
  check_units(request);
  for (auto const& state : states)
    TESSERA_VALIDATE(state.unit_shards.size() == request.units.size(), InternalError, "state ", state.name, " has ", state.unit_shards.size(),
                     " unit shards, the plan ", request.units.size());
}

/// Rank 0: room for the save and an empty directory of its own.
fs::path prepare(SaveRequest const& request, std::size_t states) {
  detail::make_directories(request.directory);
  // page alignment, HDF5 metadata, manifest and view come on top of the numbers: 16 KiB a tensor of each rank is ample
  std::int64_t pieces = 0;
  for (auto const& unit : request.plan.units()) pieces += static_cast<std::int64_t>(unit.parameters.size()) + request.plan.ranks();
  std::int64_t const needed = data_bytes(request, states) + pieces * static_cast<std::int64_t>(states) * 16384;
  std::int64_t const free = detail::free_bytes(request.directory);
  TESSERA_VALIDATE(free >= needed, IoError, "the checkpoint of step ", request.step, " needs ", needed, " bytes in ", request.directory.string(),
                   " but ", free, " are free; remove old checkpoints, keep fewer (save_total_limit) or use another output directory");
  for (int attempt = 1;; ++attempt) {
    fs::path const directory = request.directory / concat(step_name(request.step), ".tmp.", attempt);
    if (::mkdir(directory.c_str(), 0777) == 0) return directory;
    TESSERA_VALIDATE(errno == EEXIST && attempt < 10000, IoError, with_errno("cannot make directory " + directory.string(), errno));
  }
}

/// Other ranks may see a new directory late (attribute caches of network file systems).
void wait_until_visible(fs::path const& directory) {
  auto const deadline = Clock::now() + std::chrono::seconds(30);
  std::error_code error;
  while (!fs::is_directory(directory, error)) {
    TESSERA_VALIDATE(Clock::now() < deadline, IoError, directory.string(), " made by rank 0 is not visible on host ", detail::host_name(),
                     " after 30 s; the output directory must be on a file system that all nodes share");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::size_t count_of(StateViews const& states) { return states.size(); }
std::size_t count_of(StreamedStates const& states) { return states.names.size(); }

template <class States>
detail::WrittenShard write_rank(SaveRequest const& request, fs::path const& directory, int rank, States const& states) {
  detail::ShardIdentity const identity{request.run_id, request.step, rank, request.plan.ranks(), request.zero_stage};
  return detail::write_shard(directory / detail::shard_name(rank), identity, request.plan, states,
                             detail::checksum_block_for(data_bytes(request, count_of(states))));
}

std::vector<TensorRecord> make_tensors(SaveRequest const& request, std::vector<detail::WrittenShard> const& shards) {
  std::vector<TensorRecord> tensors;
  std::vector<std::size_t> first_of_unit;
  for (auto const& unit : request.units) {
    first_of_unit.push_back(tensors.size());
    for (auto const& p : unit.parameters) tensors.push_back({p.name, p.shape, p.aliases, Dtype::fp32, {}});
  }
  for (int rank = 0; rank < request.plan.ranks(); ++rank) {
    auto const pieces = request.plan.pieces(rank);
    auto const& written = shards[static_cast<std::size_t>(rank)].pieces;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      auto const tensor = first_of_unit[static_cast<std::size_t>(pieces[i].unit)] + static_cast<std::size_t>(pieces[i].parameter);
      tensors[tensor].pieces.push_back({rank, pieces[i].parameter_offset, pieces[i].numel, written[i]});
    }
  }
  return tensors;
}

Manifest make_manifest(SaveRequest const& request, std::vector<std::string> const& states, fs::path const& directory,
                       std::vector<detail::WrittenShard> const& shards) {
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
  m.checksum_block = detail::checksum_block_for(data_bytes(request, states.size()));
  m.states = states;
  for (int rank = 0; rank < m.world_size; ++rank) m.shards.push_back({detail::shard_name(rank), shards[static_cast<std::size_t>(rank)].bytes});
  m.tensors = make_tensors(request, shards);
  return m;
}

/// Out of sight first: a reader never meets half a checkpoint. What cannot be removed is left for remove_abandoned.
void discard(fs::path const& directory) {
  static int count = 0;
  fs::path const trash = directory.parent_path() / concat(trash_prefix, directory.filename().string(), ".", ++count);
  std::error_code error;
  fs::rename(directory, trash, error);
  fs::remove_all(error ? directory : trash, error);
  if (error) log::warning(concat("cannot remove ", directory.string(), ": ", error.message()));
}

/// Gives the finished directory its name. A checkpoint of the same step that stands there is replaced.
void move_into_place(fs::path const& temporary, fs::path const& final) {
  std::error_code ignored;
  if (!fs::exists(final, ignored)) {
    detail::rename_path(temporary, final);
  } else if (detail::exchange_paths(temporary, final)) {
    discard(temporary);
  } else {
    // between these two renames the new checkpoint is found by remove_abandoned, which finishes the second
    fs::path const aside = final.parent_path() / concat(trash_prefix, final.filename().string(), ".replaced");
    fs::remove_all(aside, ignored);
    detail::rename_path(final, aside);
    detail::rename_path(temporary, final);
    discard(aside);
  }
  detail::flush_directory(final.parent_path());
}

/// Oldest first, never the newest `keep` whole ones; an error here costs disk space, not the save.
std::vector<std::string> prune(fs::path const& checkpoints, int keep) {
  std::vector<std::string> pruned;
  if (keep <= 0) return pruned;
  std::vector<Listed> whole;
  for (auto& one : list_checkpoints(checkpoints))
    if (one.is_whole) whole.push_back(std::move(one));
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < whole.size(); ++i) {
    if (whole[i].is_latest) continue;
    discard(whole[i].directory);
    pruned.push_back(whole[i].name);
  }
  return pruned;
}

/// Rank 0: everything after the shards.
SavedCheckpoint publish(SaveRequest const& request, std::vector<std::string> const& states, fs::path const& temporary,
                        std::vector<detail::WrittenShard> const& shards) {
  Manifest const manifest = make_manifest(request, states, temporary, shards);
  fs::path const view = temporary / "view.h5";
  detail::write_view(view, manifest);
  detail::File::open_write(view).sync();
  write_file_atomically(manifest.file(), manifest_text(manifest));
  detail::flush_directory(temporary);
  SavedCheckpoint saved;
  for (auto const& entry : fs::directory_iterator(temporary)) saved.bytes += static_cast<std::int64_t>(entry.file_size());
  saved.directory = request.directory / step_name(request.step);
  move_into_place(temporary, saved.directory);
  try {
    write_file_atomically(request.directory / "latest", step_name(request.step) + "\n");
  } catch (IoError const& e) {
    throw IoError(concat(e.what(), "; ", saved.directory.string(), " itself is complete"));
  }
  return saved;
}

std::function<void()> undo(fs::path const& temporary, bool mine) {
  return [temporary, mine] {
    std::error_code error;
    if (mine && fs::exists(temporary, error)) discard(temporary);
  };
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

SavedCheckpoint save(SaveRequest const& request, StateViews const& states, comm::Collectives& comm) {
  auto const start = Clock::now();
  bool const leads = comm.rank() == 0;
  std::string name;
  detail::together(comm, [&] {
    check_request(request, states);
    TESSERA_VALIDATE(request.plan.ranks() == comm.size(), InternalError, "a plan for ", request.plan.ranks(), " ranks is saved by ", comm.size());
    if (leads) name = prepare(request, states.size()).string();
  }, [&] {
    if (!name.empty()) discard(name);
  });
  fs::path const temporary = comm::broadcast_bytes(comm, name, 0);
  detail::WrittenShard shard;
  detail::together(
      comm,
      [&] {
        wait_until_visible(temporary);
        shard = write_rank(request, temporary, comm.rank(), states);
      },
      undo(temporary, leads));
  auto const packed = comm::gather_bytes(comm, shard.pack(), 0);
  SavedCheckpoint saved;
  detail::together(
      comm,
      [&] {
        if (!leads) return;
        std::vector<detail::WrittenShard> shards;
        for (auto const& one : packed) shards.push_back(detail::WrittenShard::unpack(one));
        saved = publish(request, names_of(states), temporary, shards);
      },
      undo(temporary, leads));
  saved.seconds = seconds_since(start);
  saved.directory = request.directory / step_name(request.step);
  saved.bytes = comm::all_reduce_value(comm, saved.bytes, comm::ReduceOp::max);
  if (leads) saved.pruned = prune(request.directory, request.keep);
  return saved;
}

namespace {

/// @p write makes the shard of a rank in a directory.
template <class Write>
SavedCheckpoint save_alone(SaveRequest const& request, std::vector<std::string> const& names, Write const& write) {
  auto const start = Clock::now();
  fs::path const temporary = prepare(request, names.size());
  try {
    std::vector<detail::WrittenShard> shards;
    for (int rank = 0; rank < request.plan.ranks(); ++rank) shards.push_back(write(temporary, rank));
    SavedCheckpoint saved = publish(request, names, temporary, shards);
    saved.seconds = seconds_since(start);
    saved.pruned = prune(request.directory, request.keep);
    return saved;
  } catch (...) {
    undo(temporary, true)();
    throw;
  }
}

}  // namespace

SavedCheckpoint save_all(SaveRequest const& request, std::vector<StateViews> const& states_of_ranks) {
  TESSERA_VALIDATE(static_cast<int>(states_of_ranks.size()) == request.plan.ranks(), InternalError, "states of ", states_of_ranks.size(),
                   " ranks for a plan of ", request.plan.ranks());
  for (auto const& states : states_of_ranks) check_request(request, states);
  return save_alone(request, names_of(states_of_ranks[0]), [&](fs::path const& directory, int rank) {
    return write_rank(request, directory, rank, states_of_ranks[static_cast<std::size_t>(rank)]);
  });
}

SavedCheckpoint save_all(SaveRequest const& request, StreamedStates const& states) {
  TESSERA_VALIDATE(request.step >= 0 && !states.names.empty(), InternalError, "nothing to save at step ", request.step);
  check_units(request);
  return save_alone(request, states.names, [&](fs::path const& directory, int rank) { return write_rank(request, directory, rank, states); });
}

std::vector<std::string> remove_abandoned(fs::path const& checkpoints) {
  std::vector<std::string> removed;
  std::error_code error;
  std::vector<fs::path> entries;
  for (auto const& entry : fs::directory_iterator(checkpoints, error)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  for (auto const& path : entries) {
    std::string const name = path.filename().string();
    auto const mark = name.find(".tmp.");
    bool const attempt = name.rfind("step_", 0) == 0 && mark != std::string::npos;
    if (!attempt && name.rfind(trash_prefix, 0) != 0 && name.rfind("latest.tmp.", 0) != 0) continue;
    fs::path const final = checkpoints / name.substr(0, mark);
    if (attempt && !fs::exists(final) && find_problem(path).empty()) {
      // complete and durable, only its last rename is missing
      detail::rename_path(path, final);
      detail::flush_directory(checkpoints);
      continue;
    }
    discard(path);
    removed.push_back(name);
  }
  return removed;
}

}  // namespace tessera::checkpoint
