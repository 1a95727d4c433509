#pragma once
/// Batch scripts for sbatch, filled in from a template, and options of sbatch as words
/// --name=value. Pure functions of text; user input is quoted and never becomes shell code.

#include <string>
#include <utility>
#include <vector>

namespace tessera::cli {

/// Settings of one machine, read from a file with one directive per line (slurm/sites/README.md):
///   sbatch --constraint=gpu
///   module openmpi/4.1
///   export NCCL_SOCKET_IFNAME=hsn0
/// A machine with PBS has `submit --ntasks-per-node=4` and `qsub -l filesystems=home` instead of
/// sbatch.
struct SiteProfile {
  std::vector<std::string> sbatch, modules;
  std::vector<std::pair<std::string, std::string>> exports;
  std::vector<std::string> qsub{};  ///< "-l filesystems=home": the machine has PBS
  bool operator==(SiteProfile const&) const = default;
};
/// @throws DataError with source and line
SiteProfile parse_site_profile(std::string const& text, std::string const& source);

struct JobSettings {
  SiteProfile site;
  std::vector<std::string>
      sbatch;  ///< "--nodes=4": replaces the template's line of that option; otherwise it is added
  std::vector<std::string> arguments;  ///< "$@" of the script
};

/// The script for sbatch: the template with its #SBATCH lines set. The site's modules and variables
/// and the arguments, in a `set --` line, precede the template's commands. @throws
/// UsageError for #SBATCH values with spaces, quotes or control characters
std::string fill_job_script(std::string const& script_template, JobSettings const& settings);

/// The lines before the template's commands: modules, variables, arguments.
std::vector<std::string> preamble(JobSettings const& settings);

/// @throws UsageError for a word that sbatch or qsub would split, such as one with spaces
void check_sbatch_word(std::string const& word);

/// "--nodes" of "--nodes=4" or "--requeue".
std::string sbatch_name(std::string const& word);

/// @throws UsageError for a value that sbatch would refuse or misread, such as --time=abc or
/// --nodes=0
void check_sbatch_value(std::string const& word);

/// Adds @p word to @p options; it replaces one of the same name. --gpus-per-node and --gres=gpu
/// request the same devices: a count replaces that in a --gres, in the form that the machine's
/// profile has chosen.
void set_sbatch_option(std::vector<std::string>& options, std::string const& word);

/// Whether an #SBATCH line of a template, without the mark, gives way to @p options.
bool is_replaced(std::string const& line, std::vector<std::string> const& options);

/// The number of ranks that a script's #SBATCH lines ask for; 0: they do not say.
int ranks_of_script(std::string const& script);

}  // namespace tessera::cli
