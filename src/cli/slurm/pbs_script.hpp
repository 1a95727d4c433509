#pragma once
/// Batch scripts for qsub of PBS, filled in from a template with the options of sbatch.

#include <string>

#include "slurm/job_script.hpp"

namespace tessera::cli {

/// The script for qsub. --nodes and the numbers per node become the select line, which the template
/// must have; other options become #PBS lines, which replace the template's.
/// @throws UsageError for options that PBS does not have, and for values that it would misread
std::string fill_pbs_script(std::string const& script_template, JobSettings const& settings);

/// The number of ranks that the select line asks for.
int ranks_of_pbs_script(std::string const& script);

/// The walltime of PBS for a time of Slurm: "90" is 01:30:00, "1-12" is 36:00:00.
std::string pbs_walltime(std::string const& time);

}  // namespace tessera::cli
