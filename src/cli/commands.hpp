#pragma once
/// The commands of `tessera`, one source for each or for a few; a function adds its command to a
/// program or to a group. What their tests call stands next to them.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "command.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/convert.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::config {
struct TrainingArguments;
}

namespace tessera::cli {

/// The model's hidden size where its config.json can be read here; 0: unknown.
std::int64_t known_hidden_size(config::TrainingArguments const& arguments);

/// Resolves the words of tessera-train as its start does, and looks for its input files.
/// @param ranks  0: unknown; batch sizes are then not compared with it
/// @throws UsageError, ConfigError, DataError, IoError as tessera-train would
void check_training_arguments(std::vector<std::string> const& words, int ranks);

/// `tessera config check` and `page`: resolves configurations, prints the option reference.
void add_config_commands(Command& app);

/// `tessera tokenize`: prints the token ids of a text, or writes those of files. `tessera tokenizer
/// train`: trains a tokenizer.
void add_tokenize(Command& app);
void add_tokenizer(Command& app);

/// The exit code in a run's status.json. @param since  seconds since 1970: an older status belongs
/// to an earlier attempt
/// @throws IoError when the run has not ended, or when the status is older
std::int64_t recorded_exit_code(ConfigTree const& status, std::filesystem::path const& run,
                                std::int64_t since);
/// `tessera run`: starts the ranks of a training, and starts them again after failures.
void add_run(Command& app);

/// `tessera status`: the state of a run, from its status.json.
void add_status(Command& app);

/// `tessera bench-comm`: times collective operations under srun or mpirun.
void add_bench_comm(Command& app);

/// The group `tessera checkpoint`.
void add_checkpoint_commands(Command& app);

/// `tessera checkpoint diff`: compares two checkpoints tensor by tensor.
void add_diff(Command& group);

/// `tessera export`: a checkpoint becomes a Hugging Face model directory.
void add_export(Command& app);

/// `tessera import`: a DeepSpeed checkpoint or a Hugging Face model becomes a checkpoint.
void add_import(Command& app);

/// `tessera checkpoint ls`, `info` and `verify`: what checkpoints contain.
void add_inspect_commands(Command& group);

/// Sets compression and level from "none", "gzip" or "gzip:9". @throws UsageError
void set_compression(checkpoint::ConvertOptions& options, std::string const& text);
/// Sets ranks_per_file from "", "all" or a number of at least 1. @throws UsageError
void set_ranks_per_file(checkpoint::ConvertOptions& options, std::string const& text);
/// `tessera checkpoint view` and `convert`: change a checkpoint's files and keep its tensors.
void add_layout_commands(Command& group);

/// `tessera merge`: a model and its adapter become one model directory.
void add_merge(Command& app);

/// Seconds of "90", "30m", "12h", "7d" or "2w"; 0 for an empty text. @throws UsageError
double age_seconds(std::string const& text);
/// `tessera checkpoint prune`: removes old checkpoints.
void add_prune(Command& group);

/// The data type named "fp32", "float32", "bf16", "bfloat16", "fp16" or "float16". @throws
/// UsageError
Dtype model_dtype(std::string const& name);

/// Checks a model after it was written. @throws DataError naming the tensors when @p found is not
/// empty
void require_finite(std::vector<checkpoint::NonFinite> const& found, std::string const& output,
                    Dtype dtype);
/// Prints which files of earlier runs were removed or replaced.
void print_replaced(checkpoint::ConsolidateReport const& report);
/// `zero-to-fp32`: the arguments of DeepSpeed's zero_to_fp32.py, and --dtype. Adds the options to
/// @p app, which is the program zero-to-fp32 or a subcommand of tessera.
void add_consolidate(Command& app);

/// `tessera doctor`: what this node offers a run, or why a run ended.
void add_doctor(Command& app);

/// `tessera estimate`: memory before training, by DeepSpeed's formulas and by planning a run.
void add_estimate(Command& app);

/// A bash script. It completes the words of a subcommand, otherwise those of the program, otherwise
/// files.
std::string bash_completion(Command const& app);
/// Man pages: tessera-train(1); tessera(1), where @p app is the complete program; zero-to-fp32(1).
std::string training_page();
std::string tools_page(Command const& app);
std::string consolidation_page();
/// `tessera manual`: prints man pages and the bash completion.
void add_manual(Command& app);

/// `tessera plan`: memory, communication and time of every way to run a training, before it starts.
void add_plan(Command& app);

/// "1,2,4" or "1:1024", which doubles. @throws UsageError
std::vector<int> parse_node_counts(std::string const& text);
/// `tessera simulate`: how a run scales with its nodes, and what ends it.
void add_simulate(Command& app);

/// `tessera plot`: draws the loss curve of a run.
void add_plot(Command& app);

/// `tessera selftest`: checks an installation on this machine and file system in seconds.
void add_selftest(Command& app);

/// `tessera submit`: fills in a batch script and passes it to sbatch.
void add_submit(Command& app);

}  // namespace tessera::cli
