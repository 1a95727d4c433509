#include "tessera/checkpoint/save/save.hpp"

#include <algorithm>
#include <chrono>

#include "format/detail/file.hpp"
#include "save/detail/commit.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// @p write makes the shard of a rank in a directory.
template <class Write>
SavedCheckpoint save_alone(SaveRequest const& request, StateLayers const& layers,
                           Write const& write) {
  auto const start = Clock::now();
  fs::path const temporary = detail::prepare(request, layers);
  try {
    std::vector<detail::WrittenShard> shards;
    for (Rank rank = first_rank; detail::shares_files(request) && rank < Rank(request.plan.ranks());
         ++rank)
      detail::create_structure(request, temporary, rank, layers);
    for (Rank rank = first_rank; rank < Rank(request.plan.ranks()); ++rank)
      shards.push_back(write(temporary, rank));
    SavedCheckpoint saved = detail::publish(request, layers, temporary, shards);
    saved.seconds = seconds_since(start);
    saved.pruned = detail::prune(request);
    detail::remove_trash(request.directory);
    return saved;
  } catch (...) {
    detail::undo(temporary, true)();
    throw;
  }
}

}  // namespace

SavedCheckpoint save(SaveRequest const& request, StateViews const& states,
                     comm::Collectives& comm) {
  BackgroundSaver saver(comm);
  saver.begin(request, states, BackgroundSaver::Source::in_place);
  SavedCheckpoint saved = saver.finish();
  saver.finish_deletion();
  return saved;
}

SavedCheckpoint save_all(SaveRequest const& request,
                         std::vector<StateViews> const& states_of_ranks) {
  TESSERA_VALIDATE(static_cast<int>(states_of_ranks.size()) == request.plan.ranks(), InternalError,
                   "states of ", states_of_ranks.size(), " ranks for a plan of ",
                   request.plan.ranks());
  for (auto const& states : states_of_ranks) detail::check_request(request, states);
  return save_alone(
      request, layers_of(states_of_ranks[0]), [&](fs::path const& directory, Rank rank) {
        return detail::write_rank(request, directory, rank, states_of_ranks[position(rank)]);
      });
}

SavedCheckpoint save_all(SaveRequest const& request, StreamedStates const& states) {
  TESSERA_VALIDATE(request.step >= 0 && !states.names.empty(), InternalError,
                   "nothing to save at step ", request.step);
  detail::check_units(request);
  return save_alone(request, {{optim::Extent::elementwise, states.names}},
                    [&](fs::path const& directory, Rank rank) {
                      return detail::write_rank(request, directory, rank, states);
                    });
}

std::vector<Rank> starts_by_count(int ranks, int ranks_per_file) {
  TESSERA_EXPECT(ranks_per_file > 0, "a shard file of ", ranks_per_file, " ranks");
  std::vector<Rank> starts;
  for (int rank = 0; rank < ranks; rank += ranks_per_file) starts.push_back(Rank(rank));
  return starts;
}

std::vector<Rank> starts_by_host(std::vector<std::string> const& hosts) {
  std::vector<Rank> starts;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    if (rank == 0 || hosts[rank] != hosts[rank - 1]) starts.push_back(Rank(static_cast<int>(rank)));
  return starts;
}

std::vector<std::string> remove_unfinished_saves(fs::path const& checkpoints) {
  std::vector<std::string> removed;
  std::error_code error;
  std::vector<fs::path> entries;
  for (auto const& entry : fs::directory_iterator(checkpoints, error))
    entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  for (auto const& path : entries) {
    std::string const name = path.filename().string();
    auto const mark = name.find(".tmp.");
    bool const attempt = name.rfind("step_", 0) == 0 && mark != std::string::npos;
    if (!attempt && name.rfind(detail::trash_prefix, 0) != 0 && name.rfind("latest.tmp.", 0) != 0)
      continue;
    fs::path const final = checkpoints / name.substr(0, mark);
    if (attempt && !fs::exists(final) && find_problem(path).empty()) {
      // complete and durable, only its last rename is missing
      detail::rename_path(path, final);
      detail::flush_directory(checkpoints);
      continue;
    }
    detail::discard(path);
    if (!fs::exists(path, error)) removed.push_back(name);
  }
  return removed;
}

}  // namespace tessera::checkpoint
