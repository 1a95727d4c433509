#pragma once
/// What a run really uses: the kernels and libraries of its first step, the messages of its
/// gradients, threads, huge pages, drives, and memory by space and purpose. For the log and
/// status.json, so that no slow path stays hidden.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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
/// "device graphs of step 10: 96 replayed, 0 updated, ..."; where none was replayed, with the cost.
std::string graph_text(std::int64_t step, memory::GraphLaunches const& launches);

/// "io_uring with O_DIRECT", or what is used instead and why.
std::string swap_method_text(zero::SwapUse const& use);

/// Lines of the log: what is on the drive, and how it gets there. Empty without swap files.
std::vector<std::string> swap_lines(zero::EngineConfig const& config,
                                    zero::MemoryReport const& memory);
/// Directories of swap files that are in memory (tmpfs), in the words of a warning.
std::vector<std::string> swap_warnings(zero::EngineConfig const& config);

/// The field "offload" of status.json.
ConfigTree swap_status(zero::EngineConfig const& config, zero::MemoryReport const& memory);

/// A line of the log: how far ahead weights are transferred, and what limits it.
std::string prefetch_text(zero::PrefetchReport const& report);
/// The field "prefetch" of status.json.
ConfigTree prefetch_status(zero::PrefetchReport const& report);

/// Writes the line of memory_breakdown: "host memory of rank 0 (now / peak): weights 1.0 MiB / 1.0
/// MiB, ..., total ...", preceded by that of the device where there is one.
std::string memory_text();

/// Returns memory for status.json: bytes now and at the peak, of each memory space that the run
/// uses.
/// @param nvme bytes of swap files
ConfigTree memory_tree(std::size_t nvme);

}  // namespace tessera::train
