#pragma once
/// Translates the arguments of DeepSpeed's launcher to the equivalent srun or mpirun command.
/// Starts no process.

#include <optional>
#include <string>
#include <vector>

#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

/// A node and the device slots to use on it, in ascending order.
struct HostSlots {
  std::string host;
  std::vector<int> slots;
  std::string user{};  ///< user of "user@host"; empty: the user who starts the job
  bool operator==(HostSlots const&) const = default;
};

/// Reads lines "host slots=N" and "user@host slots=N"; further words, blank lines and comments (#)
/// are ignored.
/// @throws DataError for any other line, a duplicate host, or no host
std::vector<HostSlots> parse_hostfile(std::string const& text, std::string const& source);

struct LaunchRequest {
  std::vector<HostSlots>
      hosts;  ///< from a hostfile; empty: this machine, or the nodes of the Slurm job
  std::optional<int> num_nodes, num_gpus;
  std::string include, exclude;  ///< "host1:0,2@host2": hosts with or without slots
  int local_slots = 1;           ///< slots of this machine, used without hosts and num_gpus
  std::vector<std::string> program;
  std::string user;                                          ///< who starts the job
  topology::Launcher launcher = topology::Launcher::mpirun;  ///< or srun, hydra, pals
  std::string mpirun = "mpirun";  ///< the program of a launcher other than srun
  bool as_root = false;           ///< Open MPI's refuses to run as root without a flag
  std::vector<std::string> launcher_options{};  ///< further options of the launcher
  std::vector<std::string> exports{};  ///< variables for ranks of other hosts, where not all are
};

/// The hosts and slots to use. @throws UsageError for unknown hosts or slots, for include combined
/// with exclude, and for more hosts or slots than exist
std::vector<HostSlots> chosen_hosts(LaunchRequest const& request);

/// The words of the srun or mpirun command. @throws UsageError as above, and under srun and PALS
/// for slots that differ between nodes
std::vector<std::string> launch_line(LaunchRequest const& request);

}  // namespace tessera::cli
