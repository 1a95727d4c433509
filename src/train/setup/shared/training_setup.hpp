#pragma once
/// Makes a run that can begin from arguments: model, output directory, data, engine, weights.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/save/node_memory.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/train/report/run_directory.hpp"
#include "tessera/train/setup/resume_changes.hpp"
#include "tessera/train/setup/training_run.hpp"

namespace tessera::train {

/// How the parts of a run are made. An empty function: as tessera-train makes them.
struct PartMakers {
  std::function<std::unique_ptr<model::CausalLm>(ConfigTree const& config,
                                                 model::ModelOptions const& options)>
      model{};
  std::function<TrainingData(ModelSource const& source, model::CausalLm const& model)> data{};
  std::function<optim::OptimizerSpec(config::ResolvedConfig const& config)> optimizer{};
  std::function<optim::Schedule(config::ResolvedConfig const& config, std::int64_t steps)>
      schedule{};
};

/// All calls are collective; errors are thrown on every rank.
class TrainingSetup {
 public:
  explicit TrainingSetup(JobContext const& job, PartMakers makers = {})
      : job_(job), makers_(std::move(makers)) {}

  /// Finds the model's configuration and resolves all options. Touches no output directory.
  config::ResolvedConfig const& resolve();
  /// Everything else, in the order of the calls in its definition. @pre resolve() was called
  TrainingRun build();

 private:
  StartingPoint open_directory();
  void find_batch_size();
  void plan_steps();
  void reserve_memory_of_passes();
  void log_summary(StartingPoint const& start) const;
  void load_weights(StartingPoint const& start);
  void restore(StartingPoint const& start);
  void resume(StartingPoint const& at, checkpoint::Manifest const& manifest);
  StartingPoint newest();
  StartingPoint newest_after_damage(StartingPoint const& at, std::int64_t step);
  void check_finite(std::vector<checkpoint::NonFinite> const& found, StartingPoint const& at);
  void load_checkpoint_weights(StartingPoint const& start);
  void initialize_weights(zero::Engine::Fill const& fill);
  zero::Engine::Fill start_values();
  void make_model();
  void check_frozen(checkpoint::Manifest const& manifest) const;
  void start_fresh();
  void name_run(checkpoint::Manifest const* resumed, StartingPoint const& at);
  void check_model(checkpoint::Manifest const& manifest) const;
  ResumeChanges find_changes(checkpoint::Manifest const& manifest) const;
  void log_changes(checkpoint::Manifest const& manifest, ResumeChanges const& changes) const;

  JobContext job_;
  PartMakers makers_;
  TrainingRun run_;
  std::size_t activation_bytes_ = 0, host_checkpoint_bytes_ = 0;
  std::optional<checkpoint::NodeMemory> memory_;  ///< with --memory_save_steps
  StartingPoint disk_;                            ///< what the run starts from without memory
  /// Checkpoints whose data was damaged: steps on disk; in memory those from this step on.
  std::vector<std::int64_t> refused_;
  std::int64_t memory_before_ = std::numeric_limits<std::int64_t>::max();
};

/// Every option with its value and origin, what it resolves to, and the DeepSpeed configuration as
/// written.
ConfigTree resolved_config(JobContext const& job, TrainingRun const& run);

}  // namespace tessera::train
