#pragma once
/// What the offload of a run really uses, for the log and status.json.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

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

}  // namespace tessera::train
