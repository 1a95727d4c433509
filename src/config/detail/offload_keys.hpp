#pragma once
/// The keys of offloading: their part of the table, and what they mean together.

#include <functional>
#include <string>
#include <vector>

#include "tessera/config/offload.hpp"
#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {

/// Adds zero_optimization.offload_param and offload_optimizer.
void add_offload(OptionTable& table);
/// Adds the group "Disk": the block "aio".
void add_aio(OptionTable& table);

/// A note for the log of a run that offloads to the CPU.
inline constexpr char const* offload_to_cpu =
    "offloading to the CPU: no effect where the model computes on CPUs, which have the states "
    "anyway; it has one on a GPU or with --device_memory";

struct ResolvedOffload {
  Offload offload;
  std::vector<std::string> notes;
};

/// @param written the value of a key that is neither missing nor "auto", else null
/// @throws ConfigError naming keys that cannot be together, and what to change
ResolvedOffload resolve_offload(
    std::function<ConfigTree const*(std::string const& key)> const& written, std::int64_t stage,
    std::string const& source);

}  // namespace tessera::config::detail
