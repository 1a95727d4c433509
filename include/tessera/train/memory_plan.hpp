#pragma once
/// The memory that a rank needs, from the code that allocates it in a run.

#include <cstdint>

#include "tessera/memory/memory_tracker.hpp"
#include "tessera/model/causal_lm.hpp"
#include "tessera/zero/engine.hpp"

namespace tessera::train {

/// One rank's memory of a run in bytes. The ranks differ by less than a megabyte.
struct MemoryPlan {
  zero::MemoryReport states;    ///< and the engine's buffers
  std::size_t activations = 0;  ///< and workspaces, of the largest micro-batch

  std::size_t total() const {
    return states.weights + states.gradients + states.master_weights + states.optimizer_state +
           states.buffers + activations;
  }
};

/// The part of a run that decides its memory.
struct PlannedRun {
  zero::EngineConfig engine{};
  int ranks = 1;
  memory::MemorySpace space = memory::MemorySpace::device;
  /// Rows and tokens of a micro-batch.
  std::int64_t rows = 1, sequence = 1;
  bool gradient_checkpointing = false;
};

/// Builds the engine for @p run.ranks ranks and runs a micro-step of @p model with it, or an
/// evaluation with an engine for inference, without memory, kernels and communication. Afterwards
/// the memory trackers are as before.
MemoryPlan plan_memory(model::CausalLm& model, PlannedRun const& run);

}  // namespace tessera::train
