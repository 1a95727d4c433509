#pragma once
/// The memory of activations, counted and allocated before the first step.

#include <cstddef>
#include <cstdint>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/model/decoder/causal_lm.hpp"

namespace tessera::train {

/// The passes of a run; 0 rows: no such pass.
struct PlannedPasses {
  std::int64_t train_rows = 0, train_sequence = 0;
  std::int64_t evaluation_rows = 0, evaluation_sequence = 0;
  Recompute recompute = Recompute::none;
  bool cpu_checkpointing = false;
  int ranks_on_node = 1;
  bool flat = false;             ///< a pass has one row with all of its samples
  bool measures_tokens = false;  ///< see model::PlannedPass
};

/// Bytes of activations per rank in host memory: cpu_checkpointing on a device.
std::size_t host_checkpoint_bytes(model::CausalLm const& model, memory::Queue const& compute,
                                  PlannedPasses const& passes);

/// Counts the largest of the passes by the model's own allocations and allocates that memory. The
/// memory of a host is shared by its ranks. Collective.
/// @return bytes per rank
/// @throws OutOfMemoryError on every rank when it does not fit on one, naming a batch size that
/// fits
std::size_t reserve_activations(model::CausalLm& model, memory::Queue& compute,
                                comm::Collectives& comm, PlannedPasses const& passes);

/// The most rows of a training micro-batch that fit on every rank, among @p passes.train_rows and
/// its halves; 1 when not even that fits. Collective.
std::int64_t fitting_train_rows(model::CausalLm& model, memory::Queue& compute,
                                comm::Collectives& comm, PlannedPasses const& passes);

}  // namespace tessera::train
