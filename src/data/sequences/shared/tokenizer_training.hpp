#pragma once
/// Training of BPE tokenizers with the vocabulary and merges of Hugging Face's BpeTrainer.

#include <cstdint>
#include <filesystem>

namespace tessera::data {

struct TokenizerTrainingRequest {
  std::filesystem::path text;    ///< files as in SequenceRequest
  std::filesystem::path like;    ///< tokenizer whose other parts are kept; empty: those of GPT-2
  std::filesystem::path output;  ///< directory of the new tokenizer
  std::int64_t vocabulary_size = 0;
  std::int64_t min_frequency = 0;  ///< pairs that occur less often are not merged
};

/// Writes tokenizer.json and tokenizer_config.json. As transformers' train_new_from_iterator:
/// normalizer, pre_tokenizer, post_processor, decoder and special tokens are those of `like`; the
/// special tokens get the first ids. @throws ConfigError for a tokenizer that is not BPE, DataError
/// for a text without words, IoError.
/// @returns the number of tokens, which is smaller than requested if the text has too few pairs.
std::int64_t train_tokenizer(TokenizerTrainingRequest const& request);

}  // namespace tessera::data
