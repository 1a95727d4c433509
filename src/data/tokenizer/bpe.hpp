#pragma once
/// Byte-pair encoding of one word: adjacent symbols are joined in the order of their merge ranks
/// (Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016,
/// section 3.2).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tokenizer/word_encoder.hpp"

namespace tessera::data::detail {

/// Merge of rank k: entry k of a list of these.
struct Merge {
  std::int32_t left, right, result;
};

/// What a word is split into before merging.
enum class Symbols { bytes, characters };

/// The tables of a BPE model, as ids and bytes.
struct BpeTables {
  Symbols symbols = Symbols::bytes;
  std::vector<Merge> merges;
  /// Id of each byte's own token, or -1. With Symbols::characters the tokens <0x00> to <0xFF>, for
  /// characters that have no token (byte_fallback); all -1 without them.
  std::array<std::int32_t, 256> byte_ids{};
  std::unordered_map<char32_t, std::int32_t> character_ids;  ///< only with Symbols::characters
  std::int32_t unknown_id = -1;  ///< for symbols without a token; -1 drops them
  bool fuse_unknown = false;     ///< a run of unknown symbols becomes one token
  std::unordered_map<std::string, std::int32_t>
      vocabulary_words;  ///< looked up before merging (ignore_merges in tokenizer.json)
};

/// A hash table from pairs of ids to (rank, result): open addressing, at most half full.
class MergeTable {
 public:
  struct Entry {
    std::uint64_t key = ~std::uint64_t{0};
    std::int32_t rank = 0, result = 0;
  };
  explicit MergeTable(std::vector<Merge> const& merges);
  /// Null if the pair has no merge.
  Entry const* find(std::int32_t left, std::int32_t right) const {
    std::uint64_t const key = key_of(left, right);
    for (std::size_t at = slot_of(key);; at = (at + 1) & mask_) {
      if (entries_[at].key == key) return &entries_[at];
      if (entries_[at].key == ~std::uint64_t{0}) return nullptr;
    }
  }

 private:
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> shift_);
  }

  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

class Bpe : public WordEncoder {
 public:
  explicit Bpe(BpeTables tables);

 private:
  struct Symbol {
    std::int32_t id;  ///< -1 once joined to the left
    std::int32_t previous, next;
  };
  struct Candidate {
    std::int32_t rank, left, result;
  };
  /// Encodes a word given as raw bytes.
  void encode_new(std::string_view word, std::vector<std::int32_t>& out) override;
  void start_symbols(std::string_view word);
  void start_character(std::string_view character, char32_t code, bool& after_unknown);
  void append_symbol(std::int32_t id);
  void append_unknown(bool& after_unknown);
  void consider(std::int32_t at);
  void join(std::int32_t at, std::int32_t result);

  BpeTables tables_;
  MergeTable merges_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

// Reads and validates a BPE model: the vocabulary and the merges, from the model of tokenizer.json
// or from vocab.json and merges.txt.

/// Far above any vocabulary; bounds the memory that a damaged file can request.
constexpr std::int64_t max_token_id = (std::int64_t{1} << 22) - 1;

/// An integer from 0 to max_token_id.
bool is_token_id(ConfigTree const& value);

/// Adds the tokens of an object {token: id}. @throws DataError for an id out of range or used
/// twice.
void read_vocabulary(ConfigTree const& tree, std::string const& where,
                     std::unordered_map<std::string, std::int32_t>& out);

struct BpeModel {
  std::unordered_map<std::string, std::int32_t> vocabulary;  ///< as written
  BpeTables tables;
};

/// @param symbols bytes if the pre_tokenizer is byte-level
/// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not a
/// BPE model that Tessera reads).
BpeModel read_bpe_model(ConfigTree const& model, Symbols symbols, std::string const& where);

/// The contents of vocab.json and merges.txt; the names are for messages.
struct BpeFiles {
  ConfigTree vocabulary;
  std::string vocabulary_name;
  std::string merges, merges_name;
};
BpeModel read_bpe_files(BpeFiles const& files);

}  // namespace tessera::data::detail
