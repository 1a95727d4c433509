#pragma once
/// The reference model of a training on preferences: who computes its log-probabilities.

#include <memory>
#include <vector>

#include "tessera/data/sequences/text_dataset.hpp"
#include "tessera/model/layers/batch.hpp"
#include "tessera/train/setup/training_run.hpp"

namespace tessera::train {

/// It does not change during the training. New adapters leave it in the model: the passes of the
/// reference do without them. Otherwise it has weights of its own, sharded like the model's: those
/// of --ref_model_name_or_path, or the model's before the training.
class ReferenceModel {
 public:
  /// Collective. @param run outlives this @throws ConfigError for another vocabulary
  ReferenceModel(JobContext const& job, TrainingRun& run);

  /// Sums the log-probabilities of each row's tokens that the labels count. Collective.
  std::vector<double> log_probabilities(model::Batch batch) const;
  /// Computes those of all rows of a data set; the ranks share the work, @p samples at a time.
  /// Collective.
  std::vector<double> log_probabilities(data::TokenSequences const& sequences,
                                        std::int64_t samples) const;

 private:
  void make_weights(JobContext const& job, TrainingRun& run);

  TrainingRun& run_;
  bool use_adapters_ = true;
  std::unique_ptr<model::CausalLm> model_;  ///< null: the model of the run
  std::unique_ptr<zero::Weights> weights_;  ///< null: the weights of the run
};

}  // namespace tessera::train
