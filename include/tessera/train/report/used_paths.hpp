#pragma once
/// What a run really uses: the kernels and libraries of its first step, the messages of its
/// gradients, threads and huge pages. For the log and status.json, so that no slow path stays
/// hidden.

#include <cstdint>
#include <string>

#include "tessera/core/config_tree.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// Bytes of this process's memory that are in huge pages, and all that are resident; from
/// /proc/self/smaps_rollup. Zeros where the system does not tell.
struct ResidentPages {
  std::int64_t huge = 0, all = 0;
};
ResidentPages resident_pages();

/// status.json's member "uses".
ConfigTree used_paths(zero::EngineConfig const& engine, int ranks);
/// "attention tiles on the host; products oneDNN fp32; gradients reduced in fp32 over 2 ranks, ..."
std::string used_paths_text(zero::EngineConfig const& engine, int ranks);

/// How the parts of a step were launched, for metrics.jsonl and status.json.
ConfigTree graph_status(memory::GraphLaunches const& launches);
/// "CUDA graphs of step 10: 96 replayed, 0 updated, ..."; where none was replayed, with the cost.
std::string graph_text(std::int64_t step, memory::GraphLaunches const& launches);

}  // namespace tessera::train
