#pragma once
/// Chooses the next token by the logits of a position.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::train {

struct SamplingOptions {
  double temperature = 1.0;         ///< 0: always the most likely token
  std::int64_t top_k = 50;          ///< sample from the k most likely tokens; 0: from all
  double top_p = 1.0;               ///< the most likely tokens that together reach p; 1: all
  double min_p = 0.0;               ///< tokens with at least p of the largest probability; 0: all
  double repetition_penalty = 1.0;  ///< above 1: tokens of the text so far become less likely
};

/// A token that may be drawn. The weights of all candidates need not sum to 1.
struct Candidate {
  std::int32_t token = 0;
  double weight = 0.0;
};

/// The tokens that may follow @p text, most likely first (equal logits by token id), with weights
/// relative to the first one's. The order of transformers' generate(): repetition penalty,
/// temperature, top_k, top_p, min_p.
std::vector<Candidate> candidates(std::vector<float> logits, std::span<std::int32_t const> text,
                                  SamplingOptions const& options);

/// One of candidates(). @param uniform  in [0, 1)
std::int32_t draw_token(std::vector<float> logits, std::span<std::int32_t const> text,
                        SamplingOptions const& options, double uniform);

}  // namespace tessera::train
