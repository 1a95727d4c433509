#pragma once
/// What a save does to the file system, phase by phase; who calls which phase when is the business
/// of save.cpp and background_saver.cpp.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "format/detail/shard_file.hpp"
#include "tessera/checkpoint/save/save.hpp"

namespace tessera::checkpoint::detail {

/// Start of the names of what is being removed.
inline constexpr char trash_prefix[] = ".trash.";

/// @throws InternalError when plan, units and states do not belong together
void check_units(SaveRequest const& request);
void check_request(SaveRequest const& request, StateViews const& states);

/// Bytes that the files of a save need, estimated from above.
std::int64_t bytes_needed(SaveRequest const& request, StateLayers const& layers);
/// Rank 0: room for the save and an empty directory of its own. @throws IoError
std::filesystem::path prepare(SaveRequest const& request, StateLayers const& layers);
/// Other ranks may see a new directory or file late (attribute caches of network file systems).
/// @throws IoError after 30 s
void wait_until_visible(std::filesystem::path const& path, int maker);

/// Whether several ranks write into one file: then all files are laid out before any rank writes.
bool shares_files(SaveRequest const& request);
/// The structure of the file whose first rank is @p rank; of any other rank: nothing.
void create_structure(SaveRequest const& request, std::filesystem::path const& directory, Rank rank,
                      StateLayers const& layers);
WrittenShard write_rank(SaveRequest const& request, std::filesystem::path const& directory,
                        Rank rank, StateViews const& states);
WrittenShard write_rank(SaveRequest const& request, std::filesystem::path const& directory,
                        Rank rank, StreamedStates const& states);

/// Rank 0: everything after the shards, until `latest` names the checkpoint. @throws IoError
SavedCheckpoint publish(SaveRequest const& request, StateLayers const& layers,
                        std::filesystem::path const& temporary,
                        std::vector<WrittenShard> const& shards);
/// @param shards  of every rank
std::vector<SlowWriter> slow_writers(std::vector<WrittenShard> const& shards);
/// The text of the manifest of a save into @p directory.
std::string manifest_of(SaveRequest const& request, StateLayers const& layers,
                        std::filesystem::path const& directory,
                        std::vector<WrittenShard> const& shards);
/// Takes complete checkpoints out of sight (after a model-only checkpoint: others of that kind),
/// oldest first, never the newest `keep` up to this step: later ones are of a branch that the run
/// left when it went back. remove_trash() deletes them. @return their names
std::vector<std::string> prune(SaveRequest const& request);
/// Deletes what publish() has replaced, prune() has taken out of sight and earlier calls could not
/// delete. An error here costs disk space, not the save.
void remove_trash(std::filesystem::path const& checkpoints);

/// Out of sight first: a reader never meets half a checkpoint. What cannot be removed is left for
/// remove_trash() and for remove_unfinished_saves.
void discard(std::filesystem::path const& directory);
/// The end of a save that failed: @p mine, its directory goes.
std::function<void()> undo(std::filesystem::path const& temporary, bool mine);

}  // namespace tessera::checkpoint::detail
