#pragma once
/// The memory and the work of a rank, from the code that allocates and enqueues in a run; and room
/// for the swap files of all ranks of a node, looked for before the first one is made.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/kernels/attention/attention.hpp"
#include "tessera/memory/memory_tracker.hpp"
#include "tessera/memory/work_trace.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/layers/lora.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// Bytes of a memory space by purpose, as the memory tracker of a run counts them.
struct PlannedSpace {
  std::map<memory::Purpose, std::size_t> bytes;
  std::size_t total() const;
};

/// One rank's memory of a run in bytes. The ranks differ by less than a megabyte.
struct MemoryPlan {
  zero::MemoryReport states;            ///< and the engine's buffers
  std::size_t activations = 0;          ///< and workspaces, of the largest micro-batch
  std::size_t attention_workspace = 0;  ///< the workspace of cuDNN on a device
  std::size_t host_checkpoints = 0;     ///< with cpu_checkpointing, in host memory
  std::size_t memory_saves = 0;         ///< with --memory_save_steps, in host memory
  PlannedSpace device, host;            ///< all of it; the host's with pinned memory
  std::size_t saving = 0;               ///< more host memory while a checkpoint is written

  std::size_t total() const {
    return states.weights + states.gradients + states.master_weights + states.optimizer_state +
           states.buffers + activations + attention_workspace + host_checkpoints + memory_saves;
  }
  /// The part of it in host memory, where the model computes on a device.
  std::size_t in_host() const {
    return states.offloaded + host_checkpoints + (device.total() > 0 ? memory_saves : 0);
  }
};

/// The part of a run that decides its memory.
struct PlannedRun {
  zero::EngineConfig engine{};
  memory::Pass pass = memory::Pass::training;  ///< evaluation: a run that does not train
  int ranks = 1;
  memory::MemorySpace space = memory::MemorySpace::device;
  /// Rows and tokens of a micro-batch.
  std::int64_t rows = 1, sequence = 1;
  Recompute recompute = Recompute::none;
  bool cpu_checkpointing = false;
  std::optional<kernels::CudnnDevice> cudnn{};    ///< none: other kernels compute attention
  int memory_copies = 0;                          ///< copies_for_memory_saves()
  std::optional<zero::EngineConfig> reference{};  ///< reference_weights()
};

/// What cuDNN computes in a run on GPUs, as of Hopper; none where the options exclude it.
std::optional<kernels::CudnnDevice> planned_cudnn(config::TrainingArguments const& arguments);

/// The weights that a reference model has next to those of the training; none without a reference,
/// if it is part of the model, or if its log-probabilities are known before.
std::optional<zero::EngineConfig> reference_weights(config::TrainingArguments const& arguments,
                                                    config::ResolvedConfig const& config,
                                                    std::optional<model::LoraOptions> const& lora);

/// How often a rank's states are in files in memory with --memory_save_steps; 0 without.
int copies_for_memory_saves(config::TrainingArguments const& arguments, int nodes);

/// Tokens of a row: --block_size, else run_clm.py's default. @throws ConfigError above the
/// positions of @p model
std::int64_t planned_sequence(config::TrainingArguments const& arguments,
                              model::CausalLm const& model);
/// A training of the options, but for the length of its rows and recomputation.
PlannedRun planned_run(config::TrainingArguments const& arguments,
                       config::ResolvedConfig const& config,
                       std::optional<model::LoraOptions> const& lora, memory::MemorySpace space,
                       int nodes);

/// Builds the engine for @p run.ranks ranks and runs a micro-step of @p model with it, or builds
/// weights and runs an evaluation with them, without memory, kernels and communication. Afterwards
/// the memory trackers are as before.
MemoryPlan plan_memory(model::CausalLm& model, PlannedRun const& run);

/// Optimizer steps of a training, one after the other: the second one finds what the first one has
/// left, as every later step does.
struct PlannedSteps {
  MemoryPlan memory;
  std::vector<memory::PlannedWork> work;
  std::vector<std::string> queues;
  std::size_t first_of_second = 0;  ///< index in `work`
};

/// Plans two steps of @p micro_steps micro-steps each. @pre run.pass is training
PlannedSteps plan_steps(model::CausalLm& model, PlannedRun const& run, int micro_steps);

/// A file system with directories for swap files.
struct SwapRoom {
  memory::SwapDirectories directories;
  std::size_t optimizer = 0, weights = 0;  ///< bytes that one rank needs there
  std::size_t free = 0;
  std::size_t needed(int ranks) const {
    return static_cast<std::size_t>(ranks) * (optimizer + weights);
  }
};

/// Directories of one file system together; without those that cannot be examined.
/// @param memory of one rank
std::vector<SwapRoom> swap_rooms(zero::EngineConfig const& config,
                                 zero::MemoryReport const& memory);

/// The first file system without room for @p ranks, in the words of an error; empty: all have it.
std::string swap_shortage(std::vector<SwapRoom> const& rooms, int ranks, std::string const& host);

/// The kind of pass that decides which states a rank has, and where the model computes.
struct StatesOf {
  memory::Pass pass = memory::Pass::training;
  memory::MemorySpace space = memory::MemorySpace::host;
};

/// Logs what the ranks of a node need of each file system. No effect without swap files.
/// Collective.
/// @throws IoError on all ranks when a node has too little
void check_swap_room(zero::EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                     topology::RankInfo const& rank, comm::Collectives& comm, StatesOf states);

}  // namespace tessera::train
