#pragma once
/// What differs between a checkpoint and the run that resumes from it.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// A run as checkpoints describe it: the manifest's parts of the same names.
struct RunDescription {
  ConfigTree data;               ///< trainer_state.data
  std::int64_t total_steps = 0;  ///< trainer_state.schedule; 0: unknown
  ConfigTree resolved_config;    ///< "arguments" and "engine", each value with its origin
  ConfigTree model_config;
};

/// "learning_rate was 0.01, is 0.001", one text per value. What either side does not know is not
/// compared: an imported checkpoint has no data.
struct ResumeChanges {
  std::vector<std::string> data;      ///< a step reads other samples: its number says nothing
  std::vector<std::string> training;  ///< steps compute something else
  std::vector<std::string> other;     ///< steps are equal up to rounding: ranks, stage, log, saves
};
ResumeChanges compare(RunDescription const& saved, RunDescription const& now);

/// Differences of two config.json, for a checkpoint that does not fit the model.
std::vector<std::string> compare_models(ConfigTree const& saved, ConfigTree const& now);

}  // namespace tessera::train
