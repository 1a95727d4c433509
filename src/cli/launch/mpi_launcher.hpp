#pragma once
/// Which program of this machine starts ranks of the build's MPI. Machines may have launchers of
/// several MPIs; one of another MPI would start worlds of one rank.

#include <optional>
#include <string>
#include <vector>

#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

struct MpiLauncher {
  std::string program;  ///< "mpirun"
  /// "Open MPI 4.1.4", "MPICH 4.0.2", "PALS 1.8.0"; empty when it names no known MPI
  std::string version;

  topology::Launcher kind() const;
};

/// The version in the output of `mpirun --version`.
std::string launcher_version(std::string const& output);

/// The programs in PATH that start ranks, by their usual names.
std::vector<MpiLauncher> launchers_in_path();

/// The first of @p launchers that belongs to the family of @p mpi_library.
std::optional<MpiLauncher> launcher_of(std::string const& mpi_library,
                                       std::vector<MpiLauncher> const& launchers);

/// The launcher of this build's MPI. Nothing: there is none in PATH.
std::optional<MpiLauncher> own_launcher();

}  // namespace tessera::cli
