#include "tessera/train/generate/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <unordered_set>

namespace tessera::train {
namespace {

/// Keskar et al., "CTRL", arXiv 1909.05858, section 4.1; each token of the text counts once.
void penalize(std::vector<float>& logits, std::span<std::int32_t const> text, double penalty) {
  std::unordered_set<std::int32_t> const seen(text.begin(), text.end());
  for (std::int32_t const token : seen) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = static_cast<float>(logit < 0.0f ? logit * penalty : logit / penalty);
  }
}

/// The ids of the @p count largest logits, largest first.
std::vector<std::int32_t> most_likely(std::vector<float> const& logits, std::size_t count) {
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  auto const more_likely = [&](std::int32_t a, std::int32_t b) {
    float const la = logits[static_cast<std::size_t>(a)], lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    more_likely);
  order.resize(count);
  return order;
}

/// Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020: a token stays when
/// those before it have less than p.
void keep_top_p(std::vector<Candidate>& all, double p) {
  double sum = 0.0, before = 0.0;
  for (auto const& candidate : all) sum += candidate.weight;
  std::size_t kept = 0;
  for (; kept < all.size() && (kept == 0 || before < p * sum); ++kept) before += all[kept].weight;
  all.resize(kept);
}

/// Nguyen et al., "Turning Up the Heat: Min-p Sampling", arXiv 2407.01082.
void keep_min_p(std::vector<Candidate>& all, double p) {
  std::size_t kept = 1;
  while (kept < all.size() && all[kept].weight >= p * all[0].weight) ++kept;
  all.resize(kept);
}

}  // namespace

std::vector<Candidate> candidates(std::vector<float> logits, std::span<std::int32_t const> text,
                                  SamplingOptions const& options) {
  if (options.repetition_penalty != 1.0) penalize(logits, text, options.repetition_penalty);
  bool const greedy = options.temperature <= 0.0;
  std::size_t const top = greedy              ? 1
                          : options.top_k > 0 ? static_cast<std::size_t>(options.top_k)
                                              : logits.size();
  std::vector<Candidate> out;
  for (std::int32_t const token : most_likely(logits, std::min(top, logits.size()))) {
    double const behind =
        out.empty() ? 0.0
                    : logits[static_cast<std::size_t>(token)] -
                          static_cast<double>(logits[static_cast<std::size_t>(out[0].token)]);
    out.push_back({token, greedy ? 1.0 : std::exp(behind / options.temperature)});
  }
  if (options.top_p < 1.0) keep_top_p(out, options.top_p);
  if (options.min_p > 0.0) keep_min_p(out, options.min_p);
  return out;
}

std::int32_t draw_token(std::vector<float> logits, std::span<std::int32_t const> text,
                        SamplingOptions const& options, double uniform) {
  auto const all = candidates(std::move(logits), text, options);
  double sum = 0.0;
  for (auto const& candidate : all) sum += candidate.weight;
  double left = uniform * sum;
  for (auto const& candidate : all)
    if ((left -= candidate.weight) <= 0.0) return candidate.token;
  return all.back().token;
}

}  // namespace tessera::train
