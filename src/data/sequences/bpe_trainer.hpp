#pragma once
/// Learns the vocabulary and merges of byte-pair encoding from word counts, with the choices and
/// ties of Hugging Face's BpeTrainer (tokenizers 0.23, tokenizers/src/models/bpe/trainer.rs): the
/// most frequent pair is merged first, of equally frequent ones that with the smallest ids.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::data::detail {

struct BpeTrainingOptions {
  std::int64_t vocabulary_size = 30000;
  std::int64_t min_frequency = 0;             ///< smallest frequency of a pair that is merged
  std::vector<std::string> special_tokens{};  ///< get the first ids
  std::vector<std::string> alphabet{};        ///< characters that get ids even if no word has them
};

struct TrainedBpe {
  std::vector<std::string> tokens;  ///< by id
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
};

/// @param words well-formed UTF-8 with counts; symbols are characters
TrainedBpe train_bpe(std::unordered_map<std::string, std::int64_t> const& words,
                     BpeTrainingOptions const& options);

}  // namespace tessera::data::detail
