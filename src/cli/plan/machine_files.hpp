#pragma once
/// Machine profiles by name or path.

#include <string>
#include <vector>

#include "tessera/plan/machine_profile.hpp"
#include "tessera/plan/planner.hpp"

namespace tessera::cli {

/// Names of the installed example profiles.
std::vector<std::string> shipped_machines();

/// Of a file, or the shipped profile of that name. @throws UsageError naming the shipped ones,
/// ConfigError
plan::MachineProfile find_machine(std::string const& name);

/// The memory of a rank of @p machine, and what its process needs of it. null: only the latter.
plan::Limits limits_of(plan::MachineProfile const* machine);

}  // namespace tessera::cli
