#include "launch/mpi_launcher.hpp"

#include <algorithm>
#include <chrono>

#include "launch/run_program.hpp"
#include "tessera/topology/mpi_headers.hpp"

namespace tessera::cli {

std::string launcher_version(std::string const& output) {
  auto const family = topology::mpi_family(output);
  if (family == topology::MpiFamily::unknown) return "";
  // "mpirun (Open MPI) 4.1.4", or "HYDRA build details:" and lines that begin with "    Version: "
  std::string const label = family == topology::MpiFamily::open_mpi ? ")" : "Version:";
  std::size_t const after = output.find(label);
  std::size_t const begin =
      after == std::string::npos ? after : output.find_first_of("0123456789", after);
  std::string const number = begin == std::string::npos
                                 ? ""
                                 : output.substr(begin, output.find_first_of(" \n", begin) - begin);
  std::string const name = family == topology::MpiFamily::open_mpi ? "Open MPI" : "MPICH";
  return number.empty() ? name : name + " " + number;
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
