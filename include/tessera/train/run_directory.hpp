#pragma once
/// The output directory at the start of a run: may it be used, and does it hold something to go on
/// with?

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/train/run_lock.hpp"

namespace tessera::train {

/// What a run starts from.
struct StartingPoint {
  std::filesystem::path checkpoint;  ///< to resume from; empty: from the beginning
  std::string note;                  ///< for the log, may be empty
  /// Damage that shows only while the data is read: true: an older checkpoint may take its place;
  /// false: this one was asked for.
  bool may_fall_back = false;
};

/// Makes the directory, proves by a file that it can be written, and applies run_clm's rules: a
/// directory with a checkpoint is resumed; one with other contents is refused unless
/// --overwrite_output_dir. The same answer on every rank. Collective.
/// @throws IoError (74) cannot be made or written, UsageError (64) not empty, DataError (65) the
/// checkpoint asked for is damaged Rank 0 gets the directory's @p lock. @throws DirectoryInUse (64)
/// on every rank when another job works there
StartingPoint prepare_run_directory(config::TrainingArguments const& arguments,
                                    comm::Collectives& comm, std::unique_ptr<RunLock>& lock);

/// The next older whole checkpoint of the run when one of @p refused steps could not be read. The
/// same answer on every rank. Collective.
/// @return without a checkpoint when there is none
StartingPoint fall_back(config::TrainingArguments const& arguments,
                        std::vector<std::int64_t> const& refused, comm::Collectives& comm);

/// A name for a run that no other run has: "20261121-134500-5f3a9c0e17b2". The time is for people,
/// the rest random.
std::string new_run_id();

/// --overwrite_output_dir: removes what a previous run of Tessera left (checkpoints, metrics,
/// status), and nothing else.
void remove_previous_run(std::filesystem::path const& directory);

}  // namespace tessera::train
