#pragma once
/// Saving a checkpoint: every rank writes its shard, then one rename makes the complete directory
/// visible.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/nonfinite.hpp"
#include "tessera/checkpoint/format/states.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/zero/layout/partition_plan.hpp"

namespace tessera::checkpoint {

/// The model as from_pretrained() loads it (config.json, safetensors), in the checkpoint's
/// directory.
struct ModelFiles {
  Dtype dtype = Dtype::fp32;
  std::vector<std::filesystem::path> extra_files;  ///< further files to copy (tokenizer)
  bool only_model =
      false;  ///< no training state: no run can resume from it, and `latest` does not name it
};

/// What a save does with a state that is not finite: no run can continue from it.
enum class NonFiniteState {
  refuse,  ///< the checkpoint is not published, and the save fails with ConfigError
  record,  ///< in the manifest (conversions)
};

/// What is the same on all ranks of a save.
struct SaveRequest {
  std::filesystem::path directory;  ///< "<output_dir>/checkpoints"; made when missing
  std::int64_t step = 0;
  std::int64_t tokens = 0, samples = 0;  ///< seen so far
  int zero_stage = 0;
  std::string run_id;
  zero::PartitionPlan const& plan;
  std::vector<memory::UnitSpec> const&
      units;     ///< for the names of tied tensors; the units of `plan`
  int keep = 0;  ///< checkpoints to keep, this one included (save_total_limit); 0: all
  std::int64_t protected_step = -1;  ///< a step that `keep` never removes; -1: none
  NonFiniteState nonfinite = NonFiniteState::refuse;
  /// Steps without an update, up to this one. If there are any, the checkpoint does not count for
  /// `keep`, and the next one replaces it.
  std::int64_t skipped_in_a_row = 0;
  /// The first rank of every shard file, ascending from 0; ranks up to the next one share the file.
  /// Empty: one file per rank.
  std::vector<Rank> file_starts = {};
  std::optional<ModelFiles> model_files = {};
  /// Parts of the manifest; only rank 0 reads them.
  ConfigTree model_config, resolved_config, trainer_state, versions;
  ConfigTree frozen = {};  ///< as Manifest::frozen
};

/// SaveRequest::file_starts for @p ranks_per_file ranks per file (the last may hold fewer), and for
/// a file for each host; ranks of a host that do not follow each other get a file for each run of
/// them.
std::vector<Rank> starts_by_count(int ranks, int ranks_per_file);
std::vector<Rank> starts_by_host(std::vector<std::string> const& hosts);

/// A rank that took at least twice as long for its part of a checkpoint as the median of the
/// others, and half a second longer.
struct SlowWriter {
  int rank = -1;
  double seconds = 0.0, others = 0.0;  ///< its own time, and that median
};

struct SavedCheckpoint {
  std::filesystem::path directory;  ///< "<output_dir>/checkpoints/step_00000100"
  std::int64_t bytes = 0;           ///< bytes of all files
  double seconds = 0;               ///< from the start until all ranks knew that it is durable
  double stall_seconds = 0;         ///< seconds that the calling thread spent in the save
  double work_seconds = 0;  ///< seconds of the phases in a row, each as long as on its slowest rank
  std::vector<NonFinite> nonfinite;      ///< with NonFiniteState::record
  std::vector<SlowWriter> slow_writers;  ///< rank 0; empty elsewhere
  std::vector<std::string>
      pruned;  ///< names of older checkpoints removed for `keep` (rank 0; empty elsewhere)
};

/// Writes this rank's @p states (plan().extents(rank) of each) and commits with all ranks: the
/// phases of a BackgroundSaver in a row. With shard groups the ranks of the first one write.
/// Collective. A failure on any rank ends this save on all:
/// its temporary directory is removed, older checkpoints and `latest` stay as they were.
/// @throws IoError on every rank, naming the failed ranks with host, path and reason; ConfigError
/// naming the tensors when values of the state are not finite
SavedCheckpoint save(SaveRequest const& request, StateViews const& states, comm::Collectives& comm);

/// Saves from one process that holds the state of every rank of the plan, one rank after the other
/// (conversions, tests).
SavedCheckpoint save_all(SaveRequest const& request,
                         std::vector<StateViews> const& states_of_ranks);
/// Saves from a stream of the shards of all ranks of the plan, one rank after the other.
SavedCheckpoint save_all(SaveRequest const& request, StreamedStates const& states);

/// Removes the directories of interrupted saves ("step_*.tmp.*", ".trash.*"). For the start of a
/// run, on rank 0, before any save.
/// @return their names
std::vector<std::string> remove_unfinished_saves(std::filesystem::path const& checkpoints);

}  // namespace tessera::checkpoint
