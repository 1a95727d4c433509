#pragma once
/// --auto_tune: finds the fastest configuration of a run and writes it.

#include <filesystem>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/plan/tuner.hpp"

namespace tessera::plan {

struct TuningJob {
  config::TrainingArguments const& arguments;
  comm::Collectives& comm;
  Cluster cluster;
};

/// What the search has found; the arguments of the run that uses it.
struct Tuned {
  config::TrainingArguments arguments;
  bool searched = false;  ///< or a search of the same run has
  bool stopped = false;   ///< a signal asked to stop
};

/// Searches among the choices that the arguments leave open; the batch of a step does not change.
/// Rank 0 writes output_dir/tuning.json, all trials, and output_dir/tuned.json, a run file, and
/// logs the result. A result of the same run is used again where the run resumes, or where
/// autotuning.overwrite is false. Collective.
/// @throws ConfigError when no choice fits or runs
Tuned auto_tune(TuningJob const& job);

/// The result as a table with the reasons.
std::string tuning_text(Planner const& planner, TuningResult const& result);
ConfigTree to_json(Planner const& planner, TuningResult const& result);
/// The given options, with those that @p choice decides, as a run file of tessera-train.
ConfigTree tuned_run(config::TrainingArguments const& arguments, Choice const& choice);

struct TrialContext {
  comm::Collectives& comm;
  int ranks_on_node = 1;
  bool device_graphs = false;
  std::int64_t warm_up_steps = 2, measured_steps = 2;  ///< at least
  double measured_seconds = 0.0;  ///< measured steps take at least so long together
};

/// Builds model and engine of @p choice with random weights, runs steps on random tokens, and frees
/// everything. Writes no file but swap files, which it removes. The seconds are those of the
/// fastest measured step, on the slowest rank. A choice that is refused or exceeds the memory of
/// one rank does not run on any. Gives up when the first two steps take longer than
/// @p useful_seconds each, or the first one much longer. Collective.
Trial run_trial(Planner& planner, Choice const& choice, TrialContext const& where,
                double useful_seconds);

}  // namespace tessera::plan
