#include "tokenizer/bpe.hpp"

#include <algorithm>
#include <bit>

#include "tessera/core/text.hpp"

namespace tessera::data::detail {
MergeTable::MergeTable(std::vector<Merge> const& merges) {
  std::size_t const slots = std::bit_ceil(std::max<std::size_t>(2 * merges.size(), 4));
  entries_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    Entry const entry{key_of(merges[rank].left, merges[rank].right),
                      static_cast<std::int32_t>(rank), merges[rank].result};
    std::size_t at = slot_of(entry.key);
    while (entries_[at].key != ~std::uint64_t{0} && entries_[at].key != entry.key)
      at = (at + 1) & mask_;
    entries_[at] =
        entry;  // the last rank of a pair listed twice counts, as in a map filled in order
  }
}

Bpe::Bpe(BpeTables tables) : tables_(std::move(tables)), merges_(tables_.merges) {
  tables_.merges = {};
  if (tables_.symbols == Symbols::bytes) single_ = tables_.byte_ids;
}

void Bpe::append_symbol(std::int32_t id) {
  auto const at = static_cast<std::int32_t>(symbols_.size());
  symbols_.push_back({id, at - 1, at + 1});
}

void Bpe::append_unknown(bool& after_unknown) {
  if (tables_.unknown_id < 0 || (after_unknown && tables_.fuse_unknown)) return;
  append_symbol(tables_.unknown_id);
  after_unknown = true;
}

/// A character without a token becomes the tokens of its UTF-8 bytes if each of them has one.
void Bpe::start_character(std::string_view character, char32_t code, bool& after_unknown) {
  auto const id_of = [&](char c) { return tables_.byte_ids[static_cast<unsigned char>(c)]; };
  if (auto const found = tables_.character_ids.find(code); found != tables_.character_ids.end())
    append_symbol(found->second);
  else if (std::ranges::all_of(character, [&](char c) { return id_of(c) >= 0; }))
    for (char const c : character) append_symbol(id_of(c));
  else
    return append_unknown(after_unknown);
  after_unknown = false;
}

/// One symbol per byte or character, in a doubly linked list over positions.
void Bpe::start_symbols(std::string_view word) {
  symbols_.clear();
  bool after_unknown = false;
  if (tables_.symbols == Symbols::characters) {
    for (std::size_t at = 0; at < word.size();) {
      std::size_t const begin = at;
      char32_t const code = next_code_point(word, at);
      start_character(word.substr(begin, at - begin), code, after_unknown);
    }
  } else {
    for (char const c : word) {
      std::int32_t const id = tables_.byte_ids[static_cast<unsigned char>(c)];
      if (id < 0) {
        append_unknown(after_unknown);
      } else {
        append_symbol(id);
        after_unknown = false;
      }
    }
  }
  if (!symbols_.empty()) symbols_.back().next = -1;
}

namespace {
/// Lowest rank first, then leftmost.
constexpr auto later = [](auto const& a, auto const& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
};
}  // namespace

/// Adds the pair that begins at `at` to the heap if it has a merge.
void Bpe::consider(std::int32_t at) {
  if (at < 0 || symbols_[static_cast<std::size_t>(at)].next < 0) return;
  Symbol const& left = symbols_[static_cast<std::size_t>(at)];
  auto const* entry = merges_.find(left.id, symbols_[static_cast<std::size_t>(left.next)].id);
  if (!entry) return;
  heap_.push_back({entry->rank, at, entry->result});
  std::ranges::push_heap(heap_, later);
}

/// Joins the symbol at `at` with its right neighbor.
void Bpe::join(std::int32_t at, std::int32_t result) {
  Symbol& left = symbols_[static_cast<std::size_t>(at)];
  Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
  left.id = result;
  left.next = right.next;
  if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = at;
  right.id = -1;
  right.next = -1;
}

void Bpe::encode_new(std::string_view word, std::vector<std::int32_t>& out) {
  if (!tables_.vocabulary_words.empty())
    if (auto const found = tables_.vocabulary_words.find(std::string(word));
        found != tables_.vocabulary_words.end()) {
      out.push_back(found->second);
      return;
    }
  start_symbols(word);
  heap_.clear();
  for (std::size_t at = 0; at < symbols_.size(); ++at) consider(static_cast<std::int32_t>(at));
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, later);
    Candidate const best = heap_.back();
    heap_.pop_back();
    Symbol const& left = symbols_[static_cast<std::size_t>(best.at)];
    if (left.id < 0 || left.next < 0) continue;
    auto const* entry = merges_.find(left.id, symbols_[static_cast<std::size_t>(left.next)].id);
    if (!entry || entry->result != best.result)
      continue;  // one of the two has been merged in the meantime
    join(best.at, best.result);
    consider(left.previous);
    consider(best.at);
  }
  for (std::int32_t at = symbols_.empty() ? -1 : 0; at >= 0;
       at = symbols_[static_cast<std::size_t>(at)].next)
    out.push_back(symbols_[static_cast<std::size_t>(at)].id);
}

}  // namespace tessera::data::detail
