#include "tokenizer/unigram.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

constexpr double unknown_penalty = 10;  // SentencePiece's kUnkPenalty

std::vector<std::pair<std::string, std::int32_t>> with_ids(UnigramTables const& tables) {
  std::vector<std::pair<std::string, std::int32_t>> out;
  out.reserve(tables.tokens.size());
  for (auto const& [token, score] : tables.tokens)
    out.emplace_back(token, static_cast<std::int32_t>(out.size()));
  return out;
}

/// The length of the character that begins here.
std::size_t bytes_of_character(std::string_view text, std::size_t at) {
  std::size_t end = at;
  next_code_point(text, end);
  return end - at;
}

}  // namespace

TokenTrie::TokenTrie(std::vector<std::pair<std::string, std::int32_t>> tokens) {
  std::ranges::stable_sort(tokens, {}, &std::pair<std::string, std::int32_t>::first);
  struct Range {  // the tokens below a node, which share `depth` bytes
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, tokens.size(), 0}};
  nodes_.emplace_back();
  labels_.push_back(0);
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && tokens[begin].first.size() == depth; ++begin)
      if (depth > 0) nodes_[node].id = tokens[begin].second;
    nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      char const label = tokens[begin].first[depth];
      std::size_t last = begin;
      while (last < end && tokens[last].first[depth] == label) ++last;
      nodes_[node].children++;
      nodes_.emplace_back();
      labels_.push_back(static_cast<unsigned char>(label));
      ranges.push_back({begin, last, depth + 1});
      begin = last;
    }
  }
  for (std::uint32_t i = 0; i < nodes_[0].children; ++i)
    roots_[labels_[nodes_[0].first_child + i]] = nodes_[0].first_child + i;
}

/// 0 if there is none.
std::size_t TokenTrie::child(std::size_t node, unsigned char label) const {
  if (node == 0) return roots_[label];
  Node const& parent = nodes_[node];
  if (parent.children == 0) return 0;
  auto const* first = labels_.data() + parent.first_child;
  auto const* found = static_cast<unsigned char const*>(std::memchr(first, label, parent.children));
  return found ? static_cast<std::size_t>(found - labels_.data()) : 0;
}

std::int32_t TokenTrie::find(std::string_view token) const {
  std::size_t node = 0;
  for (char const c : token) {
    node = child(node, static_cast<unsigned char>(c));
    if (node == 0) return -1;
  }
  return nodes_[node].id;
}

Unigram::Unigram(UnigramTables const& tables)
    : trie_(with_ids(tables)), unknown_id_(tables.unknown_id), byte_ids_(tables.byte_ids) {
  double lowest = std::numeric_limits<double>::infinity();
  for (auto const& [token, score] : tables.tokens) {
    scores_.push_back(score);
    lowest = std::min(lowest, score);
  }
  unknown_score_ = lowest - unknown_penalty;
}

/// Viterbi's algorithm over the positions of the word.
void Unigram::find_best_path(std::string_view word) {
  ends_.assign(word.size() + 1, End{});
  auto const offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    score += ends_[begin].score;
    if (ends_[end].begin < 0 || score > ends_[end].score)
      ends_[end] = {score, static_cast<std::int64_t>(begin), id};
  };
  for (std::size_t at = 0; at < word.size();) {
    std::size_t const bytes = bytes_of_character(word, at);
    bool has_own_token = false;
    trie_.for_each_prefix(word.substr(at), [&](std::size_t length, std::int32_t id) {
      offer(at, at + length, scores_[static_cast<std::size_t>(id)], id);
      has_own_token = has_own_token || length == bytes;
    });
    if (!has_own_token) offer(at, at + bytes, unknown_score_, unknown_id_);
    at += bytes;
  }
}

void Unigram::append_unknown(std::string_view run, std::vector<std::int32_t>& out) const {
  if (std::int32_t const id = trie_.find(run); id >= 0) return out.push_back(id);
  auto const id_of = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (std::ranges::all_of(run, [&](char c) { return id_of(c) >= 0; })) {
    for (char const c : run) out.push_back(id_of(c));
    return;
  }
  TESSERA_VALIDATE(unknown_id_ >= 0, DataError, "the tokenizer has no token for '", run,
                   "' and no unk_id; add one to its tokenizer.json");
  out.push_back(unknown_id_);
}

void Unigram::encode_new(std::string_view word, std::vector<std::int32_t>& out) {
  find_best_path(word);
  borders_.clear();
  for (auto at = word.size(); at > 0; at = static_cast<std::size_t>(ends_[at].begin))
    borders_.push_back(at);
  std::ranges::reverse(borders_);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < borders_.size(); ++i) {
    std::int32_t const id = ends_[borders_[i]].id;
    if (id == unknown_id_ && i + 1 < borders_.size() && ends_[borders_[i + 1]].id == unknown_id_)
      continue;  // joins the next one
    if (id == unknown_id_)
      append_unknown(word.substr(begin, borders_[i] - begin), out);
    else
      out.push_back(id);
    begin = borders_[i];
  }
}

}  // namespace tessera::data::detail
