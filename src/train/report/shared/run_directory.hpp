#pragma once
/// The output directory at the start of a run: may it be used, and which checkpoint to resume from.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/save/node_memory.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/train/report/run_lock.hpp"

namespace tessera::train {

/// What a run starts from.
struct StartingPoint {
  std::filesystem::path checkpoint;  ///< to resume from; empty: from the beginning
  std::string note;                  ///< for the log, may be empty
  /// If reading shows damage: true: an older checkpoint may replace it; false: the user named this
  /// one.
  bool may_fall_back = false;
  /// The checkpoint is in the memory of the nodes; `checkpoint` is the part of this rank's node.
  std::optional<checkpoint::Generation> memory{};
  std::int64_t disk_step = -1;  ///< with `memory`: step of the newest checkpoint on disk; -1: none
};

/// Creates the directory, writes a test file, and applies the rules of run_clm.py: a directory with
/// a checkpoint is resumed; one with other contents is refused without --overwrite_output_dir.
/// Unlike there, that flag starts fresh only over a completed run, and no flag does in a job that
/// the batch system has restarted and that has trained here. Rank 0 gets the @p lock of the
/// directory. A run that only generates text makes no directory without --output_dir, and gets no
/// lock then. The same result on every rank. Collective.
/// @throws IoError (74) if it cannot be created, read or written, UsageError (64) if it is not
/// empty, DataError (65) if the named checkpoint or all checkpoints are damaged, DirectoryInUse
/// (64) if another job uses it
StartingPoint prepare_run_directory(config::TrainingArguments const& arguments,
                                    comm::Collectives& comm, std::unique_ptr<RunLock>& lock);

/// The newest complete checkpoint other than those of the @p refused steps, which could not be
/// read. The same result on every rank. Collective.
/// @return no checkpoint if there is no other
StartingPoint fall_back(config::TrainingArguments const& arguments,
                        std::vector<std::int64_t> const& refused, comm::Collectives& comm);

/// A unique id of a run, time and random digits: "20261121-134500-5f3a9c0e17b2".
std::string new_run_id();

/// The batch job of this process; empty outside a job.
std::string name_of_job();

/// --overwrite_output_dir: removes the checkpoints, metrics and results of a previous run, and
/// nothing else; logs their names and sizes. The checkpoints disappear by one rename: a kill leaves
/// all or none of them.
/// @throws IoError if they cannot be removed
void remove_previous_run(std::filesystem::path const& directory);

}  // namespace tessera::train
