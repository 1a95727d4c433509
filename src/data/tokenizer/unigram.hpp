#pragma once
/// The Unigram model (Kudo, "Subword regularization", ACL 2018, section 3.2): of all ways to cut a
/// word into tokens, the one with the largest sum of scores.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/word_encoder.hpp"

namespace tessera::data::detail {

/// Finds all tokens that begin a text. The children of a node are consecutive.
class TokenTrie {
 public:
  /// Builds the trie; the last one of equal tokens counts.
  explicit TokenTrie(std::vector<std::pair<std::string, std::int32_t>> tokens);

  /// Calls visit(length in bytes, id) for each token that is a prefix of @p text, the shortest
  /// first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit const& visit) const {
    std::size_t node = 0;
    for (std::size_t at = 0; at < text.size();) {
      node = child(node, static_cast<unsigned char>(text[at++]));
      if (node == 0) return;
      if (nodes_[node].id >= 0) visit(at, nodes_[node].id);
    }
  }
  /// The id of a token, or -1.
  std::int32_t find(std::string_view token) const;

 private:
  struct Node {
    std::uint32_t first_child = 0;
    std::int32_t id = -1;
    std::uint16_t children = 0;
  };
  std::size_t child(std::size_t node, unsigned char label) const;

  std::vector<Node> nodes_;
  std::vector<unsigned char> labels_;  ///< by node
  std::array<std::uint32_t, 256> roots_{};
};

struct UnigramTables {
  std::vector<std::pair<std::string, double>> tokens;  ///< by id: text and score
  std::int32_t unknown_id = -1;
  /// Ids of the tokens <0x00> to <0xFF>, with byte_fallback; else -1.
  std::array<std::int32_t, 256> byte_ids{};
};

/// Runs of characters without a token become one unknown token, or the tokens of their bytes, as in
/// Hugging Face's Unigram.
class Unigram : public WordEncoder {
 public:
  explicit Unigram(UnigramTables const& tables);

 private:
  void encode_new(std::string_view word, std::vector<std::int32_t>& out) override;
  void find_best_path(std::string_view word);
  void append_unknown(std::string_view run, std::vector<std::int32_t>& out) const;

  /// The best path that ends at a position.
  struct End {
    double score = 0;
    std::int64_t begin = -1;  ///< begin of its last token; -1: none ends here
    std::int32_t id = 0;
  };
  TokenTrie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::int32_t unknown_id_;
  std::array<std::int32_t, 256> byte_ids_;
  std::vector<End> ends_;
  std::vector<std::size_t> borders_;
};

}  // namespace tessera::data::detail
