#pragma once
/// Where a training is: what a checkpoint keeps next to weights and optimizer states.

#include <cstdint>
#include <string>

#include "tessera/config/resolved_config.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/data/sampling/sampler.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::train {

/// The best evaluation so far; see loop/model_export.hpp.
struct BestEvaluation {
  double metric = 0.0;
  std::int64_t step = -1;  ///< -1: none
  std::int64_t evaluations_without_improvement = 0;
  /// The step whose checkpoint is loaded at the end: the last one that was the best when it was
  /// saved; -1: none. An evaluation between saves may be better.
  std::int64_t saved_step = -1;
};

/// How far a training has come.
struct TrainingState {
  std::int64_t first_step = 1;        ///< first step of this attempt
  std::int64_t applied_steps = 0;     ///< not skipped: the position in the learning-rate schedule
  std::int64_t skipped_in_a_row = 0;  ///< steps without an update up to now
  std::int64_t tokens = 0, samples = 0;  ///< consumed by all ranks so far
  BestEvaluation best;
  /// The evaluation after the last step was stopped: a resume repeats it first.
  bool evaluation_interrupted = false;
  std::string run_id;       ///< kept over resumes
  ConfigTree resumed_from;  ///< {"run_id", "step", "checkpoint"}; null: from the beginning
};

/// Epochs that step @p step, counted from 1, ends at; 0 before the first one.
double epochs_after(data::Sampler const& sampler, std::int64_t step);

/// What a resume needs from the engine.
struct EngineState {
  std::int64_t optimizer_steps = 0;
  optim::LossScalerState scaler;
};

/// What the state of a step is described from.
struct TrainingPosition {
  config::TrainingArguments const& arguments;
  config::ResolvedConfig const& config;
  data::Sampler const& sampler;
  optim::Schedule const& schedule;
  TrainingState const& state;
  EngineState engine;
  ConfigTree const& texts;  ///< TrainingData::identity
};

/// The part of the state that says which samples the steps read: texts, tokenizer, order.
ConfigTree data_description(data::Sampler const& sampler, ConfigTree const& texts);

/// The manifest's `trainer_state` after step @p step: what a resume needs and what a person wants
/// to know of it. Random numbers are functions of seed, step and position (core/random.hpp), so
/// seeds and the step are their complete state.
ConfigTree trainer_state(TrainingPosition const& position, std::int64_t step);

/// Reads @p tree into @p state and returns the engine's part.
EngineState read_trainer_state(ConfigTree const& tree, TrainingState& state);

}  // namespace tessera::train
