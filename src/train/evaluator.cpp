#include "tessera/train/evaluator.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/core/clock.hpp"
#include "tessera/data/sampler.hpp"

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

/// Sum of the token losses of some samples.
double Evaluator::pass(std::int64_t first_sample, std::int64_t count) {
  tokens_.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    auto const sequence = sequences_[first_sample + i];
    tokens_.insert(tokens_.end(), sequence.begin(), sequence.end());
  }
  model::Batch const batch{tokens_.data(), count, sequences_.length(), 0};
  if (prediction_step_) return prediction_step_(batch);
  return context_.model.evaluate(batch, context_.weights, context_.compute).value();
}

EvaluationResult Evaluator::evaluate() {
  auto const started = std::chrono::steady_clock::now();
  int const ranks = context_.comm.size();
  auto const mine = data::evaluation_range(sequences_.count(), ranks, Rank(context_.comm.rank()));
  std::int64_t const most = samples_of_busiest_rank(sequences_.count(), ranks);
  EvaluationResult result;
  double sum = 0.0;
  for (std::int64_t offset = 0; offset < most; offset += sequences_per_pass_, ++result.passes) {
    if (between_passes_) between_passes_();
    std::int64_t const left =
        std::clamp<std::int64_t>(mine.end - mine.begin - offset, 0, sequences_per_pass_);
    if (left > 0)
      sum += pass(mine.begin + offset, left);
    else
      pass(0, 1);
  }
  sum = comm::all_reduce_value(context_.comm, sum, comm::ReduceOp::sum);
  result.samples = sequences_.count();
  result.loss = sum / static_cast<double>(sequences_.count() * (sequences_.length() - 1));
  result.perplexity = result.loss < 700.0 ? std::exp(result.loss) : INFINITY;
  result.seconds = seconds_since(started);
  return result;
}

}  // namespace tessera::train
