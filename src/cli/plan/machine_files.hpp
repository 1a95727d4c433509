#pragma once
/// Machine profiles by name or path.

#include <string>
#include <vector>

#include "tessera/plan/machine_profile.hpp"

namespace tessera::cli {

/// Names of the installed example profiles.
std::vector<std::string> shipped_machines();

/// Of a file, or the shipped profile of that name. @throws UsageError naming the shipped ones,
/// ConfigError
plan::MachineProfile find_machine(std::string const& name);

}  // namespace tessera::cli
