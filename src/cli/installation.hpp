#pragma once
/// Paths of this installation, relative to the running program, so that the tree can be moved; and
/// machine profiles by name or path.

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/plan/machine_profile.hpp"
#include "tessera/plan/planner.hpp"

namespace tessera::cli {

/// The program @p name in the directory of the running program. @throws IoError when it is missing
std::filesystem::path sibling_program(std::string const& name);

/// An installed file: <prefix>/share/tessera/<relative>. A build folder has the same layout, with
/// links to the source tree. Empty when it is missing.
std::filesystem::path shipped_file(std::filesystem::path const& relative);
/// Finds an installed file relative to the program @p program.
std::filesystem::path shipped_file(std::filesystem::path const& relative,
                                   std::filesystem::path const& program);

/// The complete text of a file. @throws IoError, DataError for UTF-16 and UTF-32
std::string read_text(std::filesystem::path const& file);

/// Names of the installed example profiles.
std::vector<std::string> shipped_machines();

/// Reads a profile from a file, or the shipped one of that name. @throws UsageError naming the
/// shipped ones, ConfigError
plan::MachineProfile find_machine(std::string const& name);

/// The memory of a rank of @p machine, and what its process needs of it. null: only the latter.
plan::Limits limits_of(plan::MachineProfile const* machine);

}  // namespace tessera::cli
