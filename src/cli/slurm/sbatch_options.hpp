#pragma once
/// Options of sbatch as words --name=value.

#include <string>
#include <vector>

namespace tessera::cli {

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
