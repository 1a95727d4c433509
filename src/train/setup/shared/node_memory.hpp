#pragma once
/// The directory for checkpoints in memory that `tessera run` gives its ranks, and the choice
/// between them and those on disk.

#include <cstdint>
#include <optional>

#include "tessera/checkpoint/save/node_memory.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/train/report/run_directory.hpp"

namespace tessera::train {

/// The variable of `tessera run` that names the directory.
inline constexpr char const* memory_directory_variable = "TESSERA_MEMORY_DIRECTORY";

/// The directory of this rank's node, with --memory_save_steps in a run that trains. Simulated
/// nodes have directories of their own below it.
/// @throws UsageError without `tessera run`
std::optional<checkpoint::NodeMemory> node_memory(config::TrainingArguments const& arguments,
                                                  topology::MpiSession const& session,
                                                  topology::Environment const& environment);

/// The newest checkpoint in memory of a step before @p before, if it is newer than @p disk; else
/// @p disk. Collective.
StartingPoint newer_of(StartingPoint disk, checkpoint::NodeMemory const& memory,
                       std::int64_t before, comm::Collectives& comm);

}  // namespace tessera::train
