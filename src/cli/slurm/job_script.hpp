#pragma once
/// Batch scripts for sbatch, made from a template. Text in, text out; what users give never becomes
/// shell code.

#include <string>
#include <utility>
#include <vector>

namespace tessera::cli {

/// A small file with what is particular to a machine, one directive a line (slurm/sites/README.md):
///   sbatch --constraint=gpu
///   module openmpi/4.1
///   export NCCL_SOCKET_IFNAME=hsn0
struct SiteProfile {
  std::vector<std::string> sbatch, modules;
  std::vector<std::pair<std::string, std::string>> exports;
  bool operator==(SiteProfile const&) const = default;
};
/// @throws DataError naming source and line
SiteProfile parse_site_profile(std::string const& text, std::string const& source);

struct JobSettings {
  SiteProfile site;
  std::vector<std::string>
      sbatch;  ///< "--nodes=4": replaces the template's own line for that option, else is added
  std::vector<std::string> arguments;  ///< what the script sees as "$@"
};

/// The script that is handed to sbatch: the template with its #SBATCH lines set, the site's modules
/// and variables, and the arguments in a `set --` line in front of the template's commands. @throws
/// UsageError for #SBATCH values with spaces, quotes or control characters
std::string fill_job_script(std::string const& script_template, JobSettings const& settings);

}  // namespace tessera::cli
