#pragma once
/// The arguments of DeepSpeed's launcher as the srun or mpirun line that does the same. Values
/// only: nothing is started here.

#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

/// A node and the device slots to use on it, in ascending order.
struct HostSlots {
  std::string host;
  std::vector<int> slots;
  bool operator==(HostSlots const&) const = default;
};

/// Lines "host slots=N", where more words may follow; blank lines and comments (#) are left out.
/// @throws DataError for anything else, a host twice, or no host
std::vector<HostSlots> parse_hostfile(std::string const& text, std::string const& source);

struct LaunchRequest {
  std::vector<HostSlots>
      hosts;  ///< of a hostfile; empty: this machine, or the nodes of the Slurm job
  std::optional<int> num_nodes, num_gpus;
  std::string include, exclude;  ///< "host1:0,2@host2": hosts, with or without slots
  int local_slots = 1;           ///< of this machine, when neither hosts nor num_gpus say it
  std::vector<std::string> program;
  bool inside_slurm = false;
  bool as_root = false;  ///< mpirun wants to be told
};

/// The hosts that remain. @throws UsageError for unknown hosts or slots, include together with
/// exclude, and more than there is
std::vector<HostSlots> chosen_hosts(LaunchRequest const& request);

/// The words of the command line. @throws UsageError as above, and for slots that differ between
/// nodes under srun
std::vector<std::string> launch_line(LaunchRequest const& request);

/// As a person would type it: words in single quotes where the shell needs them.
std::string shell_quoted(std::string const& word);
std::string shell_line(std::vector<std::string> const& words);

}  // namespace tessera::cli
