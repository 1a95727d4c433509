#include "tokenizer/bpe.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/byte_alphabet.hpp"

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
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
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
    Symbol const& left = symbols_[static_cast<std::size_t>(best.left)];
    if (left.id < 0 || left.next < 0) continue;
    auto const* entry = merges_.find(left.id, symbols_[static_cast<std::size_t>(left.next)].id);
    if (!entry || entry->result != best.result)
      continue;  // one of the two has been merged in the meantime
    join(best.left, best.result);
    consider(left.previous);
    consider(best.left);
  }
  for (std::int32_t at = symbols_.empty() ? -1 : 0; at >= 0;
       at = symbols_[static_cast<std::size_t>(at)].next)
    out.push_back(symbols_[static_cast<std::size_t>(at)].id);
}

namespace {

/// Adds the merge of two tokens; @returns the error, or an empty string.
std::string add_merge(std::string const& left, std::string const& right, BpeModel& out) {
  Merge merge{};
  std::string const merged = left + right;
  for (auto const& [token, id] :
       {std::pair{&left, &merge.left}, {&right, &merge.right}, {&merged, &merge.result}}) {
    auto const found = out.vocabulary.find(*token);
    if (found == out.vocabulary.end())
      return concat("names '", *token, "', which is not in the vocabulary");
    *id = found->second;
  }
  out.tables.merges.push_back(merge);
  return "";
}

/// "a b": neither token holds a space, which the byte alphabet writes as another character.
std::string add_merge_line(std::string const& line, BpeModel& out) {
  std::size_t const space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
    return concat("is '", line, "'; expected two tokens with a space between them");
  return add_merge(line.substr(0, space), line.substr(space + 1), out);
}

void read_merges(ConfigTree const& tree, std::string const& where, BpeModel& out) {
  auto const& merges = tree.as_array();
  out.tables.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    bool const is_pair = merges[i].is_array() && merges[i].size() == 2;
    TESSERA_VALIDATE(is_pair || merges[i].is_string(), DataError, where, "[", i, "] is ",
                     merges[i].dump(), "; expected two tokens");
    std::string const fault = is_pair ? add_merge(merges[i].as_array()[0].as_string(),
                                                  merges[i].as_array()[1].as_string(), out)
                                      : add_merge_line(merges[i].as_string(), out);
    TESSERA_VALIDATE(fault.empty(), DataError, where, "[", i, "] ", fault);
  }
}

void read_merges_text(std::string const& text, std::string const& where, BpeModel& out) {
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    std::string const fault = add_merge_line(line, out);
    TESSERA_VALIDATE(fault.empty(), DataError, where, " line ", line_number, " ", fault);
  }
}

/// The token of a byte in the vocabulary, by the function that writes it; @returns how many bytes
/// have none.
template <class NameOf>
int find_bytes(BpeModel& out, NameOf const& name_of) {
  int missing = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    auto const found = out.vocabulary.find(name_of(byte));
    out.tables.byte_ids[byte] = found == out.vocabulary.end() ? -1 : found->second;
    missing += found == out.vocabulary.end();
  }
  return missing;
}

/// What happens to symbols without a token, as in Hugging Face's BPE.
void read_unknown(ConfigTree const& model, std::string const& where, BpeModel& out) {
  if (std::string const unknown = model.get_string("unk_token", ""); !unknown.empty()) {
    auto const found = out.vocabulary.find(unknown);
    TESSERA_VALIDATE(found != out.vocabulary.end(), DataError, where, ".unk_token is '", unknown,
                     "', which is not in the vocabulary");
    out.tables.unknown_id = found->second;
  }
  out.tables.fuse_unknown = model.get_bool("fuse_unk", false);
}

/// Finds each byte's own token. Where some are missing, unk_token decides.
void read_bytes(ConfigTree const& model, std::string const& where, BpeModel& out) {
  int const missing = find_bytes(out, byte_token);
  TESSERA_VALIDATE(missing < 256, ConfigError, where,
                   ".vocab has none of the 256 byte tokens that a ByteLevel pre_tokenizer needs");
  if (missing == 0) return;
  TESSERA_VALIDATE(!model.get_bool("byte_fallback", false), ConfigError, where,
                   ".byte_fallback is true and ", missing,
                   " of the 256 byte tokens are missing; that is not supported with a ByteLevel "
                   "pre_tokenizer");
  read_unknown(model, where, out);
}

/// Finds the tokens of one character, and with byte_fallback those of bytes.
void read_characters(ConfigTree const& model, std::string const& where, BpeModel& out) {
  for (auto const& [token, id] : out.vocabulary) {
    std::size_t at = 0;
    if (token.empty()) continue;
    char32_t const code = next_code_point(token, at);
    if (at == token.size()) out.tables.character_ids.emplace(code, id);
  }
  out.tables.byte_ids.fill(-1);
  if (model.get_bool("byte_fallback", false)) find_bytes(out, fallback_token);
  read_unknown(model, where, out);
}

}  // namespace

bool is_token_id(ConfigTree const& value) {
  return value.is_int() && value.as_int() >= 0 && value.as_int() <= max_token_id;
}

void read_vocabulary(ConfigTree const& tree, std::string const& where,
                     std::unordered_map<std::string, std::int32_t>& out) {
  auto const& members = tree.as_object();
  TESSERA_VALIDATE(!members.empty(), DataError, where, " is empty");
  out.reserve(members.size() * 2);
  std::vector<bool> used;
  for (auto const& [token, value] : members) {  // hundreds of thousands: messages on failure only
    TESSERA_VALIDATE(is_token_id(value), DataError, where, "['", token, "'] is ", value.dump(),
                     "; a token id is an integer from 0 to ", max_token_id);
    auto const id = static_cast<std::size_t>(value.as_int());
    if (id >= used.size()) used.resize(id * 2 + 1);
    TESSERA_VALIDATE(!used[id], DataError, where, "['", token, "'] has the id ", id,
                     ", which another token has");
    used[id] = true;
    out.emplace(token, static_cast<std::int32_t>(id));
  }
}

BpeModel read_bpe_model(ConfigTree const& model, Symbols symbols, std::string const& where) {
  BpeModel out;
  out.tables.symbols = symbols;
  auto const* dropout = model.find("dropout");
  TESSERA_VALIDATE(!dropout || dropout->is_null() || dropout->as_double() == 0, ConfigError, where,
                   ".dropout is ", dropout->dump(),
                   "; tokens would differ from run to run. Set it to null");
  for (char const* field : {"continuing_subword_prefix", "end_of_word_suffix"})
    TESSERA_VALIDATE(model.get_string(field, "").empty(), ConfigError, where, ".", field, " is '",
                     model.get_string(field, ""), "'; Tessera reads BPE without it");
  read_vocabulary(model.at("vocab"), where + ".vocab", out.vocabulary);
  read_merges(model.at("merges"), where + ".merges", out);
  bool const bytes = symbols == Symbols::bytes;
  bytes ? read_bytes(model, where, out) : read_characters(model, where, out);
  if (!model.get_bool("ignore_merges", false)) return out;
  for (auto const& [token, id] : out.vocabulary)
    if (auto word = bytes ? bytes_of_token(token) : token)
      out.tables.vocabulary_words.emplace(std::move(*word), id);
  return out;
}

BpeModel read_bpe_files(BpeFiles const& files) {
  BpeModel out;
  read_vocabulary(files.vocabulary, files.vocabulary_name, out.vocabulary);
  read_merges_text(files.merges, files.merges_name, out);
  read_bytes(ConfigTree::object(), files.vocabulary_name, out);
  return out;
}

}  // namespace tessera::data::detail
