#pragma once
/// The output directory at the start of a run: may it be used, and does it hold something to go on with?

#include <filesystem>
#include <optional>
#include <string>

#include "tessera/comm/collectives.hpp"
#include "tessera/train/arguments.hpp"

namespace tessera::train {

/// What a run starts from.
struct StartingPoint {
  std::filesystem::path checkpoint;  ///< to resume from; empty: from the beginning
  std::string note;                  ///< for the log, may be empty
};

/// Makes the directory, proves by a file that it can be written, and applies run_clm's rules: a directory with a checkpoint is
/// resumed; one with other contents is refused unless --overwrite_output_dir. The same answer on every rank. Collective.
/// @throws IoError (74) cannot be made or written, UsageError (64) not empty
StartingPoint prepare_run_directory(TrainingArguments const& arguments, comm::Collectives& comm);

/// --overwrite_output_dir: removes what a former run of Tessera left (checkpoints, metrics, status), and nothing else.
void remove_former_run(std::filesystem::path const& directory);

}  // namespace tessera::train
