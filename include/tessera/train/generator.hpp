#pragma once
/// Sampling text from a model, token by token.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/train/model_context.hpp"

namespace tessera::train {

struct SamplingOptions {
  std::int64_t max_new_tokens = 50;
  double temperature = 1.0;  ///< 0: always the most likely token
  std::int64_t top_k = 50;   ///< sample from the k most likely tokens; 0: from all
  std::uint64_t seed = 42;
  std::int32_t end_of_text = -1;  ///< stops the generation; -1: none
  /// Called on every rank with all tokens after each new one; the generation ends with what it
  /// throws.
  std::function<void(std::vector<std::int32_t> const&)> after_token{};
};

/// Samples from softmax(logits / temperature) restricted to the `top_k` most likely tokens; equal
/// logits rank by token id.
/// @param uniform  in [0, 1)
std::int32_t draw_token(std::vector<float> const& logits, double temperature, std::int64_t top_k,
                        double uniform);

/// Prints text that grows while its tokens are generated.
class GrowingText {
 public:
  /// @return what @p text has more than the last call returned, without a last character of which
  /// bytes are still missing: decoders write it as U+FFFD
  std::string_view grow(std::string_view text);
  /// The same with that character.
  std::string_view finish(std::string_view text);

 private:
  std::size_t given_ = 0;
};

/// @p tokens and what follows. All ranks compute (stage 3 gathers weights), rank 0 draws the token.
/// A pass sees the last max_positions() tokens. Collective.
std::vector<std::int32_t> generate_tokens(ModelContext context, std::vector<std::int32_t> tokens,
                                          SamplingOptions const& options);

}  // namespace tessera::train
