#pragma once
/// Continues texts token by token, with a key/value cache.

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/train/generate/sampling.hpp"
#include "tessera/train/step/model_context.hpp"

namespace tessera::train {

using Tokens = std::vector<std::int32_t>;

enum class FinishReason {
  length,       ///< max_new_tokens, or all positions of the model
  end_of_text,  ///< one of GenerationOptions::ends_of_text
  stopped       ///< GenerationOptions::after_token said so
};

struct GeneratedText {
  Tokens tokens;  ///< the new ones
  FinishReason finish = FinishReason::length;
};

struct GenerationOptions {
  std::int64_t max_new_tokens = 50;
  SamplingOptions sampling{};
  std::uint64_t seed = 42;
  Tokens ends_of_text{};           ///< each ends its text, which contains it
  std::int64_t rows_per_pass = 8;  ///< prompts that one rank continues at a time
  /// Called on rank 0 after each token of a text, with all its new tokens; true ends the text. On
  /// the other ranks it must be present, too, or absent on all.
  std::function<bool(std::size_t prompt, Tokens const& tokens)> after_token{};
  /// Called on rank 0 with each complete text, in order.
  std::function<void(std::size_t prompt, GeneratedText const& text)> after_text{};
  /// Called on every rank before each pass; the generation ends with what it throws.
  std::function<void()> between_passes{};
};

/// What follows each of @p prompts, which are the same on all ranks. Each rank continues
/// `rows_per_pass` prompts at a time, and all get all results. Token i of prompt p depends on the
/// seed, p, i and the prompts of the same pass, for every number of ranks. Collective.
/// @throws DataError for a prompt that is empty or leaves no position for a new token
std::vector<GeneratedText> generate(ModelContext context, std::vector<Tokens> const& prompts,
                                    GenerationOptions const& options);

}  // namespace tessera::train
