// The trainer's evaluation and generation.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tessera/core/log.hpp"
#include "tessera/core/random.hpp"
#include "tessera/train/results.hpp"
#include "tessera/train/trainer.hpp"

namespace tessera::train {
namespace {

/// A token drawn from the `top_k` most likely ones at `temperature`; temperature 0 takes the most
/// likely.
std::int32_t draw_token(std::vector<float> const& logits, double temperature, std::int64_t top_k,
                        double uniform) {
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  auto const kept = static_cast<std::ptrdiff_t>(
      top_k > 0 ? std::min<std::size_t>(static_cast<std::size_t>(top_k), order.size())
                : order.size());
  auto const more_likely = [&](std::int32_t a, std::int32_t b) {
    float const la = logits[static_cast<std::size_t>(a)], lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), more_likely);
  if (temperature <= 0.0) return order[0];
  std::vector<double> weights;
  double sum = 0.0;
  for (std::ptrdiff_t i = 0; i < kept; ++i) {
    double const difference = logits[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] -
                              logits[static_cast<std::size_t>(order[0])];
    weights.push_back(std::exp(difference / temperature));
    sum += weights.back();
  }
  double left = uniform * sum;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if ((left -= weights[i]) <= 0.0) return order[i];
  return order[static_cast<std::size_t>(kept - 1)];
}

}  // namespace

/// The exact token mean on any number of ranks: rows are dealt without repetition. Every rank makes
/// the same number of passes, since stage 3 gathers weights in each; a rank that has run out of
/// rows computes one again and leaves it out of the sum.
void Trainer::evaluate(std::int64_t step) {
  auto const started = std::chrono::steady_clock::now();
  std::int64_t const length = eval_blocks_->length(),
                     batch_rows = arguments_.per_device_eval_batch_size;
  auto const mine = data::evaluation_range(eval_blocks_->count(), comm_.size(), comm_.rank());
  auto const size = [](data::SampleRange const& range) { return range.end - range.begin; };
  std::int64_t most = 0;
  for (int r = 0; r < comm_.size(); ++r)
    most = std::max(most, size(data::evaluation_range(eval_blocks_->count(), comm_.size(), r)));
  double sum = 0.0;
  for (std::int64_t offset = 0; offset < most; offset += batch_rows) {
    std::int64_t const have = std::clamp<std::int64_t>(size(mine) - offset, 0, batch_rows);
    tokens_.clear();
    for (std::int64_t i = 0; i < std::max<std::int64_t>(have, 1); ++i) {
      auto const block = (*eval_blocks_)[have > 0 ? mine.begin + offset + i : 0];
      tokens_.insert(tokens_.end(), block.begin(), block.end());
    }
    double const part = model_
                            ->evaluate({tokens_.data(), std::max<std::int64_t>(have, 1), length, 0},
                                       *engine_, *compute_)
                            .value();
    if (have > 0) sum += part;
  }
  sum = comm::all_reduce_value(comm_, sum, comm::ReduceOp::sum);
  double const loss = sum / static_cast<double>(eval_blocks_->count() * (length - 1));
  double const perplexity = loss < 700.0 ? std::exp(loss) : INFINITY;
  double const seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (!is_root()) return;
  if (progress_) progress_->clear();
  log::info(fmt::format(
      "evaluation after step {}: eval_loss {:.4f}, perplexity {:.2f} ({} samples, {:.1f} s)", step,
      loss, perplexity, eval_blocks_->count(), seconds));
  double const epoch = sampler_ ? epoch_of(step) : 0.0;
  if (metrics_) {
    ConfigTree record;
    record.set("step", step)
        .set("epoch", epoch)
        .set("eval_loss", loss)
        .set("perplexity", perplexity);
    metrics_->write(record);
  }
  ConfigTree results;
  results.set("epoch", epoch)
      .set("eval_loss", loss)
      .set("eval_runtime", seconds)
      .set("eval_samples", eval_blocks_->count());
  results.set("eval_samples_per_second", static_cast<double>(eval_blocks_->count()) / seconds);
  std::int64_t const passes = (most + batch_rows - 1) / batch_rows;
  results.set("eval_steps_per_second", static_cast<double>(passes) / seconds)
      .set("perplexity", perplexity);
  write_results(arguments_.output_dir, "eval", results);
}

/// The prompt's ids on every rank, and after them the id that ends a text (-1: none).
std::vector<std::int32_t> Trainer::prompt_tokens() const {
  std::string const bytes = comm::broadcast_from_root(comm_, [&] {
    std::vector<std::int32_t> tokens = tokenizer_->encode(arguments_.prompt);
    if (tokens.empty()) tokens.push_back(std::max(tokenizer_->eos_id(), 0));
    tokens.push_back(tokenizer_->eos_id());
    return std::string(reinterpret_cast<char const*>(tokens.data()),
                       tokens.size() * sizeof tokens[0]);
  });
  std::vector<std::int32_t> tokens(bytes.size() / sizeof(std::int32_t));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

/// Continues the prompt token by token. All ranks compute (stage 3 gathers weights), rank 0 draws.
void Trainer::generate() {
  TESSERA_VALIDATE(!source_.tokenizer_directory.empty(), UsageError,
                   "--do_generate needs a tokenizer; give --tokenizer_name DIR");
  std::vector<std::int32_t> tokens = prompt_tokens();
  std::int32_t const end_of_text = tokens.back();
  tokens.pop_back();
  std::size_t const given = tokens.size();
  Philox const random{static_cast<std::uint64_t>(arguments_.seed), 0x67656e6572617465u};
  for (std::int64_t i = 0; i < arguments_.max_new_tokens; ++i) {
    auto const window = static_cast<std::int64_t>(
        std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(model_->max_positions())));
    auto const logits = model_->next_token_logits(
        {tokens.data() + static_cast<std::int64_t>(tokens.size()) - window, 1, window, 0}, *engine_,
        *compute_);
    double const uniform = random.uniform(static_cast<std::uint64_t>(i));
    std::int64_t next =
        is_root() ? draw_token(logits, arguments_.temperature, arguments_.top_k, uniform) : 0;
    next = comm::all_reduce_value(comm_, next, comm::ReduceOp::max);
    tokens.push_back(static_cast<std::int32_t>(next));
    if (next == end_of_text) break;
  }
  if (!is_root()) return;
  log::info(fmt::format("{} new tokens after the prompt:", tokens.size() - given));
  std::printf("%s\n", tokenizer_->decode(tokens).c_str());
  std::fflush(stdout);
}

}  // namespace tessera::train
