#pragma once
/// Evaluation: mean token loss and perplexity over a data set.

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/data/sequences/text_dataset.hpp"
#include "tessera/train/step/model_context.hpp"
#include "tessera/train/step/outcome.hpp"

namespace tessera {
class ExactSum;
}

namespace tessera::train {

class Preference;

/// Computes the loss of the current weights over a data set.
class Evaluator {
 public:
  /// @param sequences_per_pass  per_device_eval_batch_size
  /// @param between_passes  called before each pass; the evaluation ends with what it throws
  Evaluator(ModelContext context, data::TokenSequences sequences, std::int64_t sequences_per_pass,
            std::function<void()> between_passes = {});

  /// Computes the sum of the token losses of a batch, instead of the model's evaluate().
  using PredictionStep = std::function<double(model::Batch const& batch)>;
  void set_prediction_step(PredictionStep step) { prediction_step_ = std::move(step); }

  /// The samples are pairs, and this is their loss; it outlives the evaluator.
  void set_preference(Preference* preference) { preference_ = preference; }

  /// Every rank takes a pass of the data set in turn, and the sums are exact: the result has the
  /// same bits for any number of ranks.
  void use_exact_sums() { exact_ = true; }

  /// The exact token mean for any number of ranks: each sample counts once. Every rank runs the
  /// same number of passes, because stage 3 gathers weights in each; a rank without samples left
  /// repeats one and leaves it out of the sum. Collective.
  EvaluationResult evaluate();

 private:
  struct Sums {
    double losses = 0.0;
    std::int64_t predictions = 0;
    double hits = 0.0;          ///< NaN: not counted
    double entropy = 0.0;       ///< likewise
    std::vector<double> pairs;  ///< PreferenceSums::values(); may be empty
  };
  /// Adds the passes of this rank.
  void add_passes(EvaluationResult& result, Sums& sums, ExactSum& losses);
  Sums pass(std::int64_t first_sample, std::int64_t count);

  ModelContext context_;
  data::TokenSequences sequences_;
  std::int64_t sequences_per_pass_;
  std::function<void()> between_passes_;
  PredictionStep prediction_step_;
  Preference* preference_ = nullptr;
  bool exact_ = false;
};

}  // namespace tessera::train
