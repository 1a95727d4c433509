#pragma once
/// The trained model as a Hugging Face directory at the end of a run, and the best evaluation
/// before it: save_strategy best, load_best_model_at_end, early stopping.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/train/setup/training_run.hpp"
#include "tessera/train/step/evaluator.hpp"
#include "tessera/train/step/training_state.hpp"

namespace tessera::train {

/// Files that belong next to the weights: the tokenizer's, and generation_config.json of the model
/// that the run started from. Read on rank 0.
std::vector<std::filesystem::path> model_companions(TrainingRun const& run);

/// Checks before the first step whether the trained model and, where the run saves, another
/// checkpoint fit into the output directory. Collective. @throws IoError on every rank
void require_room(JobContext const& job, TrainingRun const& run);

/// All ranks write their weights into config.json, safetensors and the companions in the output
/// directory; a failure leaves it as it was. Collective.
/// @param last_saved_step  of the newest checkpoint, for the message; -1: none
/// @throws IoError on every rank
void export_model(JobContext const& job, TrainingRun const& run, std::int64_t last_saved_step);

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
