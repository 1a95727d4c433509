#include "tessera/train/step/preference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
/// -log sigmoid(x), without overflow.
double softplus(double minus_x) {
  return std::max(minus_x, 0.0) + std::log1p(std::exp(-std::abs(minus_x)));
}

/// The sum of a row's @p values.
double row_sum(std::vector<float> const& values, std::size_t row, std::int64_t sequence) {
  if (values.empty()) return 0.0;
  auto const begin = values.begin() + static_cast<std::ptrdiff_t>(row) * sequence;
  return std::accumulate(begin, begin + sequence, 0.0);
}

}  // namespace

PairLoss pair_loss(PreferenceOptions const& options, Completion const& chosen,
                   Completion const& rejected) {
  double const beta = options.beta, e = options.label_smoothing,
               x = beta * (chosen.log_ratio() - rejected.log_ratio());
  double loss = 0.0, slope = 0.0;  // by x
  switch (options.loss) {
    case config::LossType::hinge:
      loss = std::max(0.0, 1.0 - x);
      slope = x < 1.0 ? -1.0 : 0.0;
      break;
    case config::LossType::robust:
      loss = ((1.0 - e) * softplus(-x) - e * softplus(x)) / (1.0 - 2.0 * e);
      slope = (e * -sigmoid(x) - (1.0 - e) * sigmoid(-x)) / (1.0 - 2.0 * e);
      break;
    case config::LossType::ipo: {
      double const chosen_tokens = std::max(chosen.tokens, 1.0),
                   rejected_tokens = std::max(rejected.tokens, 1.0),
                   rest = chosen.log_ratio() / chosen_tokens -
                          rejected.log_ratio() / rejected_tokens - 0.5 / beta;
      return {rest * rest, 2.0 * rest / chosen_tokens, -2.0 * rest / rejected_tokens};
    }
    default:
      loss = softplus(-x);
      slope = -sigmoid(-x);
  }
  return {loss, beta * slope, -beta * slope};
}

std::vector<double> PreferenceSums::values() const {
  auto const all = std::bit_cast<std::array<double, count>>(*this);
  return {all.begin(), all.end()};
}

PreferenceSums PreferenceSums::of(double const* values) {
  std::array<double, count> copy{};
  std::copy_n(values, count, copy.begin());
  return std::bit_cast<PreferenceSums>(copy);
}

PreferenceMetrics PreferenceSums::means() const {
  auto const mean = [](double sum, double number) { return number > 0.0 ? sum / number : 0.0; };
  return {{mean(chosen_logits, chosen_tokens), mean(rejected_logits, rejected_tokens),
           mean(chosen_reward, pairs), mean(rejected_reward, pairs), mean(ordered, pairs),
           mean(chosen_reward - rejected_reward, pairs), mean(chosen_log_probability, pairs),
           mean(rejected_log_probability, pairs)}};
}

void Preference::begin(model::Batch& batch) {
  TESSERA_EXPECT(batch.labels && batch.rows % 2 == 0);
  auto const reference = reference_(batch);
  sequence_ = batch.sequence;
  rows_.clear();
  for (std::size_t row = 0; row < reference.size(); ++row) {
    auto const* const labels = batch.labels + static_cast<std::int64_t>(row) * sequence_;
    rows_.push_back({.reference = reference[row],
                     .tokens = static_cast<double>(std::count_if(
                         labels, labels + sequence_, [](auto label) { return label >= 0; }))});
  }
  batch.row_loss = this;
}

std::vector<float> Preference::weigh(model::TokenValues const& values) {
  std::vector<float> factors;
  loss_ = 0.0;
  sums_ = {};
  for (std::size_t row = 0; row < rows_.size(); row += 2) {
    for (auto r : {row, row + 1}) rows_[r].log_probability = -row_sum(values.losses, r, sequence_);
    Completion const &chosen = rows_[row], &rejected = rows_[row + 1];
    PairLoss const pair = pair_loss(options_, chosen, rejected);
    loss_ += pair.loss;
    // a token loss is the negative log-probability
    factors.push_back(static_cast<float>(-pair.by_chosen));
    factors.push_back(static_cast<float>(-pair.by_rejected));
    ++sums_.pairs;
    sums_.hits += row_sum(values.hits, row, sequence_);
    sums_.chosen_tokens += chosen.tokens;
    sums_.rejected_tokens += rejected.tokens;
    sums_.chosen_logits += row_sum(values.mean_logits, row, sequence_);
    sums_.rejected_logits += row_sum(values.mean_logits, row + 1, sequence_);
    sums_.chosen_reward += options_.beta * chosen.log_ratio();
    sums_.rejected_reward += options_.beta * rejected.log_ratio();
    sums_.ordered += chosen.log_ratio() > rejected.log_ratio() ? 1.0 : 0.0;
    sums_.chosen_log_probability += chosen.log_probability;
    sums_.rejected_log_probability += rejected.log_probability;
  }
  return factors;
}

std::vector<float> RowLogProbabilities::weigh(model::TokenValues const& values) {
  auto const sequence = std::ssize(values.losses) / std::ssize(sums);
  for (std::size_t row = 0; row < sums.size(); ++row)
    sums[row] = -row_sum(values.losses, row, sequence);
  return {};
}

}  // namespace tessera::train
