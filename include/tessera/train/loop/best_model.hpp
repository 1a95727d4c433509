#pragma once
/// The best evaluation of a run: save_strategy best, load_best_model_at_end, early stopping.

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/train/setup/training_run.hpp"
#include "tessera/train/step/evaluator.hpp"
#include "tessera/train/step/training_state.hpp"

namespace tessera::train {

/// Compares evaluations with the best one so far, which the training state keeps.
class BestModel {
 public:
  enum class Metric { loss, perplexity, accuracy };
  enum class Better { lower, higher };
  struct Options {
    Metric metric = Metric::loss;
    Better better = Better::lower;
    std::optional<std::int64_t> patience;  ///< evaluations without improvement; none: no end
    double threshold = 0.0;                ///< smallest improvement that counts for the patience
  };
  BestModel(Options const& options, TrainingState& state) : options_(options), state_(state) {}

  /// @return whether @p result is the best so far. NaN never is.
  bool evaluated(std::int64_t step, EvaluationResult const& result);
  /// The patience is used up.
  bool should_stop() const;
  /// "eval_loss 1.25 of step 40"
  std::string best_text() const;

 private:
  double value_of(EvaluationResult const& result) const;
  bool better(double value, double than) const;

  Options options_;
  TrainingState& state_;
};

/// None when no option of @p arguments asks for the best evaluation.
std::optional<BestModel::Options> best_model_options(config::TrainingArguments const& arguments);

/// Loads the checkpoint of the best step into the engine, if it is not the last step. A checkpoint
/// that does not exist is a warning. Collective.
void load_best_model(JobContext const& job, TrainingRun& run, std::int64_t last_step);

}  // namespace tessera::train
