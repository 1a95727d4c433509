#include "launch/mpi_launcher.hpp"

#include <algorithm>
#include <chrono>

#include "launch/run_program.hpp"
#include "tessera/core/error.hpp"
#include "tessera/topology/mpi_headers.hpp"

namespace tessera::cli {

std::string launcher_version(std::string const& output) {
  struct Format {
    char const *name, *before_number;
  };
  // "mpirun (Open MPI) 4.1.4"; "HYDRA build details:" and lines that begin with "    Version: ";
  // "mpiexec version 1.8.0 revision ..."
  bool const pals = output.starts_with("mpiexec version ");
  auto const family = topology::mpi_family(output);
  if (!pals && family == topology::MpiFamily::unknown) return "";
  auto const format = pals                                      ? Format{"PALS", "version "}
                      : family == topology::MpiFamily::open_mpi ? Format{"Open MPI", ")"}
                                                                : Format{"MPICH", "Version:"};
  std::size_t const after = output.find(format.before_number);
  std::size_t const begin =
      after == std::string::npos ? after : output.find_first_of("0123456789", after);
  if (begin == std::string::npos) return format.name;
  return concat(format.name, " ", output.substr(begin, output.find_first_of(" \n", begin) - begin));
}

topology::Launcher MpiLauncher::kind() const {
  if (version.starts_with("PALS")) return topology::Launcher::pals;
  return topology::mpi_family(version) == topology::MpiFamily::mpich ? topology::Launcher::hydra
                                                                     : topology::Launcher::mpirun;
}

std::vector<MpiLauncher> launchers_in_path() {
  std::vector<MpiLauncher> found;
  for (char const* program :
       {"mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.mpich", "mpirun.openmpi"}) {
    auto const said = run_program({program, "--version"}, std::chrono::seconds(20));
    if (said.code == 0) found.push_back({program, launcher_version(said.output)});
  }
  return found;
}

std::optional<MpiLauncher> launcher_of(std::string const& mpi_library,
                                       std::vector<MpiLauncher> const& launchers) {
  auto const family = topology::mpi_family(mpi_library);
  auto const own = std::ranges::find_if(launchers, [&](MpiLauncher const& launcher) {
    return !launcher.version.empty() && topology::mpi_family(launcher.version) == family;
  });
  return own == launchers.end() ? std::nullopt : std::optional<MpiLauncher>(*own);
}

std::optional<MpiLauncher> own_launcher() {
  return launcher_of(topology::mpi_version_of_headers(), launchers_in_path());
}

}  // namespace tessera::cli
