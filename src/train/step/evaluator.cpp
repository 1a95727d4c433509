#include "tessera/train/step/evaluator.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "tessera/core/clock.hpp"
#include "tessera/core/exact_sum.hpp"
#include "tessera/data/sampling/batch_loader.hpp"
#include "tessera/data/sampling/sampler.hpp"
#include "tessera/train/step/preference.hpp"
#include "tessera/train/step/training_step.hpp"

namespace tessera::train {
namespace {

/// Samples of the rank that has the most.
std::int64_t samples_of_busiest_rank(std::int64_t samples, int ranks) {
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    auto const range = data::evaluation_range(samples, ranks, Rank(rank));
    most = std::max(most, range.end - range.begin);
  }
  return most;
}

}  // namespace

Evaluator::Evaluator(ModelContext context, data::TokenSequences sequences,
                     std::int64_t sequences_per_pass, std::function<void()> between_passes)
    : context_(context),
      sequences_(std::move(sequences)),
      sequences_per_pass_(sequences_per_pass),
      between_passes_(std::move(between_passes)) {}

/// Sums the losses of @p count samples in one forward pass.
Evaluator::Sums Evaluator::pass(std::int64_t first_sample, std::int64_t count) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first_sample);
  auto const loaded = data::read_batch(sequences_, std::move(samples));
  Sums out;
  constexpr std::int64_t not_counted = -1;
  std::int64_t hits = not_counted;
  model::TokenMetrics metrics;
  model::Batch batch = batch_of(loaded);
  batch.hits = &hits;
  if (sequences_.holds_examples()) batch.metrics = &metrics;
  if (preference_) preference_->begin(batch);
  out.losses = prediction_step_
                   ? prediction_step_(batch)
                   : context_.model.evaluate(batch, context_.weights, context_.compute).value();
  out.predictions = preference_ ? count : context_.model.predictions(batch);
  if (preference_) out.pairs = preference_->sums().values();
  out.entropy = metrics.entropy ? metrics.entropy->value() : NAN;
  out.hits = hits == not_counted ? NAN : static_cast<double>(hits);
  return out;
}

void Evaluator::add_passes(EvaluationResult& result, Sums& sums, ExactSum& losses) {
  int const ranks = context_.mesh.data_size();
  Rank const reader{context_.mesh.data_coordinate()};
  auto const mine = data::evaluation_range(sequences_.count(), ranks, reader);
  std::int64_t const most = samples_of_busiest_rank(sequences_.count(), ranks);
  std::int64_t const stride = exact_ ? sequences_per_pass_ * ranks : sequences_per_pass_,
                     begin = exact_ ? sequences_per_pass_ * value(reader) : mine.begin,
                     end = exact_ ? sequences_.count() : mine.end;
  for (std::int64_t offset = 0; offset < (exact_ ? end : most); offset += stride, ++result.passes) {
    if (between_passes_) between_passes_();
    std::int64_t const left =
        std::clamp<std::int64_t>(end - begin - offset, 0, sequences_per_pass_);
    auto const of_pass = left > 0 ? pass(begin + offset, left) : pass(0, 1);
    if (left == 0) continue;
    sums.losses += of_pass.losses;
    losses.add(of_pass.losses);
    sums.predictions += of_pass.predictions;
    sums.hits += of_pass.hits;
    sums.entropy += of_pass.entropy;
    sums.pairs.resize(of_pass.pairs.size());
    std::ranges::transform(sums.pairs, of_pass.pairs, sums.pairs.begin(), std::plus<>());
  }
}

EvaluationResult Evaluator::evaluate() {
  auto const started = std::chrono::steady_clock::now();
  EvaluationResult result;
  Sums sums;
  ExactSum losses;
  add_passes(result, sums, losses);
  auto const over_ranks = [&](auto sum) {
    return comm::all_reduce_value(context_.data_ranks(), sum, comm::ReduceOp::sum);
  };
  auto const predictions =
      static_cast<double>(std::max<std::int64_t>(over_ranks(sums.predictions), 1));
  result.samples = sequences_.count();
  if (exact_) comm::all_reduce_sum(context_.data_ranks(), losses);
  result.loss = (exact_ ? losses.value() : over_ranks(sums.losses)) / predictions;
  if (double const hits = over_ranks(sums.hits); !std::isnan(hits))
    result.accuracy = hits / predictions;
  if (double const entropy = over_ranks(sums.entropy); !std::isnan(entropy))
    result.entropy = entropy / predictions;
  if (preference_) {
    sums.pairs.resize(PreferenceSums::count);
    comm::all_reduce_values(context_.data_ranks(), sums.pairs, comm::ReduceOp::sum);
    auto const pairs = PreferenceSums::of(sums.pairs.data());
    result.preferences = pairs.means();
    result.accuracy = pairs.accuracy();
    result.entropy =
        result.entropy.value_or(0.0) * predictions / (pairs.chosen_tokens + pairs.rejected_tokens);
  }
  result.perplexity = result.loss < 700.0 ? std::exp(result.loss) : INFINITY;
  result.seconds = seconds_since(started);
  return result;
}

}  // namespace tessera::train
