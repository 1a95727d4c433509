#pragma once
/// Direct preference optimization (Rafailov et al., NeurIPS 2023) as TRL's DPOTrainer computes it:
/// the loss of pairs of rows relative to a reference model. docs/reference/preferences.md.

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/config/arguments.hpp"
#include "tessera/model/layers/batch.hpp"
#include "tessera/train/step/outcome.hpp"

namespace tessera::train {

struct PreferenceOptions {
  config::LossType loss = config::LossType::sigmoid;
  double beta = 0.1;
  double label_smoothing = 0.0;  ///< for the loss robust
};

/// Sums over the tokens of a completion.
struct Completion {
  double log_probability = 0.0, reference = 0.0;  ///< sums of the model and of the reference model
  double tokens = 0.0;
  double log_ratio() const { return log_probability - reference; }
};

/// The loss of a pair and its derivatives by the two log-probabilities.
struct PairLoss {
  double loss = 0.0, by_chosen = 0.0, by_rejected = 0.0;
};
PairLoss pair_loss(PreferenceOptions const& options, Completion const& chosen,
                   Completion const& rejected);

/// What pairs add up to, of which PreferenceMetrics are means.
struct PreferenceSums {
  double pairs = 0.0;
  double ordered = 0.0;  ///< pairs whose chosen reward is the higher one
  double hits = 0.0;     ///< chosen tokens that were the most likely ones
  double chosen_tokens = 0.0, rejected_tokens = 0.0;
  double chosen_logits = 0.0, rejected_logits = 0.0;  ///< mean logits of the tokens
  double chosen_reward = 0.0, rejected_reward = 0.0;
  double chosen_log_probability = 0.0, rejected_log_probability = 0.0;

  static constexpr std::size_t count = 11;
  std::vector<double> values() const;
  static PreferenceSums of(double const* values);
  PreferenceMetrics means() const;
  double accuracy() const { return chosen_tokens > 0.0 ? hits / chosen_tokens : 0.0; }
};

/// The loss of the batches of one data set. Rows 2i and 2i + 1 of a batch are the chosen and the
/// rejected sequence of a pair; its labels are the tokens of the completions.
class Preference final : public model::RowLoss {
 public:
  /// The reference model's log-probabilities of the rows of a batch; collective.
  using Reference = std::function<std::vector<double>(model::Batch const& batch)>;
  Preference(PreferenceOptions options, Reference reference)
      : options_(options), reference_(std::move(reference)) {}

  /// Asks the reference model and makes this the loss of @p batch, which outlives its pass.
  void begin(model::Batch& batch);
  std::vector<float> weigh(model::TokenValues const& values) override;
  double loss() const override { return loss_; }
  /// What the last batch has added up to.
  PreferenceSums const& sums() const { return sums_; }

 private:
  PreferenceOptions options_;
  Reference reference_;
  std::vector<Completion> rows_;
  std::int64_t sequence_ = 0;
  double loss_ = 0.0;
  PreferenceSums sums_;
};

/// Sums the token losses of each row: a Preference::Reference evaluates with it.
class RowLogProbabilities final : public model::RowLoss {
 public:
  explicit RowLogProbabilities(std::int64_t rows) : sums(static_cast<std::size_t>(rows)) {}
  std::vector<float> weigh(model::TokenValues const& values) override;
  double loss() const override { return 0.0; }
  std::vector<double> sums;
};

}  // namespace tessera::train
