#pragma once
/// Tokenizers, read from the files of a Hugging Face model directory.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

/// Bytes of a text.
struct TextSpan {
  std::size_t begin = 0, end = 0;
};

/// Gives the same token ids as Hugging Face's fast tokenizers for the same files: added tokens are
/// matched first, the normalizer changes the remaining text, the pre_tokenizer splits it into
/// words, the model (BPE, Unigram or WordPiece) turns each word into tokens, and the
/// post_processor's ids are added before and after the text.
///
/// docs/reference/text-data.md lists what is supported in tokenizer.json. tokenizer_config.json and
/// special_tokens_map.json name special tokens and model_max_length. Anything else that would
/// change ids is an error that names it.
///
/// Bytes that are not valid UTF-8 are replaced by U+FFFD, as bytes.decode(errors="replace") does in
/// Python.
///
/// encode() caches words: use a Tokenizer from one thread at a time.
class Tokenizer {
 public:
  /// @param path a directory with tokenizer.json, with vocab.json and merges.txt, or with
  /// SentencePiece's tokenizer.model; or one of these files.
  /// @throws IoError, DataError or ConfigError naming file and field.
  explicit Tokenizer(std::filesystem::path const& path);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Appends the ids of `text` to `out`.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Appends the ids of `text` without those of the post_processor, and for each whether its text
  /// overlaps one of `spans`: what transformers computes from the offsets of a fast tokenizer with
  /// add_special_tokens=False.
  /// @param spans in order, between characters
  /// @throws DataError for text that is not UTF-8, or where spans cannot be followed through a
  /// normalizer
  void encode_spans(std::string_view text, std::span<TextSpan const> spans,
                    std::vector<std::int32_t>& out, std::vector<std::uint8_t>& inside) const;

  /// Whether decode() writes special tokens.
  enum class SpecialTokens { keep, skip };
  /// The text of these tokens. Bytes that are not valid UTF-8 become U+FFFD; ids without a token
  /// are skipped.
  std::string decode(std::span<std::int32_t const> ids,
                     SpecialTokens special = SpecialTokens::keep) const;

  /// Calls @p visit with each word that the normalizer and the pre_tokenizer make of @p text; added
  /// tokens in it are text. Training of tokenizers counts them.
  void for_each_word(std::string_view text,
                     std::function<void(std::string_view)> const& visit) const;
  /// The symbols of words are bytes, not characters.
  bool byte_level() const;

  /// The id of a token as it is written in the vocabulary, or -1.
  std::int32_t find(std::string_view token) const;

  /// Number of tokens including added ones: len(tokenizer).
  std::int64_t vocabulary_size() const;
  /// The largest id; a model needs max_id() + 1 embeddings.
  std::int32_t max_id() const;
  /// Returns the limit of tokenizer_config.json; the largest integer if there is no limit.
  std::int64_t model_max_length() const;
  /// The end-of-text token's id; -1 if there is none.
  std::int32_t eos_id() const;
  /// XXH3 over the tokenizer's files.
  std::uint64_t fingerprint() const;
  /// The files this was read from.
  std::vector<std::filesystem::path> const& files() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::shared_ptr<Tokenizer> load_tokenizer(std::filesystem::path const& path);

}  // namespace tessera::data
