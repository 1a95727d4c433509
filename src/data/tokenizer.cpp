#include "tessera/data/tokenizer.hpp"

#include <algorithm>
#include <optional>

#include "detail/added_tokens.hpp"
#include "detail/bpe.hpp"
#include "detail/byte_alphabet.hpp"
#include "detail/regex.hpp"
#include "detail/tokenizer_file.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/utf8.hpp"

namespace tessera::data {
namespace {

using Ids = std::vector<std::int32_t>;
using detail::AddedToken;

std::vector<AddedToken> tokens_with(std::vector<AddedToken> const& all, bool normalized) {
  std::vector<AddedToken> out;
  std::ranges::copy_if(all, std::back_inserter(out),
                       [&](AddedToken const& t) { return t.normalized == normalized; });
  return out;
}

/// A compiled step of the pre-tokenizer.
struct Split {
  std::optional<detail::Regex> regex;
  bool keep_gaps;
  bool add_prefix_space;
};

}  // namespace

struct Tokenizer::State {
  struct Entry {
    std::string bytes;  ///< the text of the token
    bool present = false, special = false;
  };

  explicit State(detail::TokenizerFile file)
      : raw_added(tokens_with(file.added, false)),
        normalized_added(tokens_with(file.added, true)),
        bpe(std::move(file.model.tables)) {
    for (auto const& [token, id] : file.model.vocabulary)
      put(id, detail::bytes_of_token(token).value_or(token), false);
    for (auto const& token : file.added) {
      put(token.id, token.content, token.special);
      file.model.vocabulary.emplace(token.content, token.id);
    }
    for (auto const& rule : file.splits) {
      std::optional<detail::Regex> regex;
      if (!rule.pattern.empty())
        regex.emplace(rule.pattern, file.files.front().string() + ": pre_tokenizer");
      splits.push_back({std::move(regex), rule.keep_gaps, rule.add_prefix_space});
    }
    about = std::move(file);
  }

  void put(std::int32_t id, std::string bytes, bool special) {
    if (static_cast<std::size_t>(id) >= entries.size())
      entries.resize(static_cast<std::size_t>(id) + 1);
    entries[static_cast<std::size_t>(id)] = {std::move(bytes), true, special};
  }

  void encode_piece(std::string_view piece, std::size_t step, Ids& out);
  void encode_plain(std::string_view text, Ids& out);
  void encode(std::string_view text, Ids& out);

  detail::TokenizerFile about;  ///< its vocabulary holds the added tokens too
  std::vector<Entry> entries;   ///< by id
  detail::AddedTokenMatcher raw_added, normalized_added;
  std::vector<Split> splits;
  detail::Bpe bpe;
};

/// Applies the pre-tokenizer from @p step on, and encodes the words that result.
void Tokenizer::State::encode_piece(std::string_view piece, std::size_t step, Ids& out) {
  if (piece.empty()) return;
  if (step == splits.size()) return bpe.encode(piece, out);
  Split const& split = splits[step];
  std::string with_space;
  if (split.add_prefix_space && piece[0] != ' ') {
    with_space.reserve(piece.size() + 1);
    with_space.append(" ").append(piece);
    piece = with_space;
  }
  if (!split.regex) return encode_piece(piece, step + 1, out);
  std::size_t done = 0;
  detail::Regex::Match match;
  while (done < piece.size() && split.regex->search(piece, done, match)) {
    if (split.keep_gaps) encode_piece(piece.substr(done, match.begin - done), step + 1, out);
    encode_piece(piece.substr(match.begin, match.end - match.begin), step + 1, out);
    done = match.end;
  }
  if (split.keep_gaps) encode_piece(piece.substr(done), step + 1, out);
}

/// Encodes text between the added tokens that are matched before normalization.
void Tokenizer::State::encode_plain(std::string_view text, Ids& out) {
  if (normalized_added.empty()) return encode_piece(text, 0, out);
  std::vector<detail::AddedTokenMatcher::Piece> pieces;
  normalized_added.split(text, pieces);
  for (auto const& piece : pieces) {
    if (piece.id >= 0)
      out.push_back(piece.id);
    else
      encode_piece(piece.text, 0, out);
  }
}

void Tokenizer::State::encode(std::string_view text, Ids& out) {
  out.insert(out.end(), about.prefix_ids.begin(), about.prefix_ids.end());
  std::vector<detail::AddedTokenMatcher::Piece> pieces;
  raw_added.split(text, pieces);
  for (auto const& piece : pieces) {
    if (piece.id >= 0)
      out.push_back(piece.id);
    else
      encode_plain(piece.text, out);
  }
  out.insert(out.end(), about.suffix_ids.begin(), about.suffix_ids.end());
}

Tokenizer::Tokenizer(std::filesystem::path const& path)
    : state_(std::make_unique<State>(detail::read_tokenizer_file(path))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

void Tokenizer::encode(std::string_view text, Ids& out) const {
  TESSERA_VALIDATE(
      text.size() < std::size_t{1} << 30, DataError, "a text of ", text.size(),
      " bytes is too long to be tokenized in one call; break it into lines of less than 1 GiB");
  if (is_utf8(text)) return state_->encode(text, out);
  std::string valid;
  append_valid_utf8(text, valid);
  state_->encode(valid, out);
}

Ids Tokenizer::encode(std::string_view text) const {
  Ids out;
  encode(text, out);
  return out;
}

std::string Tokenizer::decode(std::span<std::int32_t const> ids, SpecialTokens special) const {
  std::string bytes, out;
  for (std::int32_t const id : ids) {
    if (id < 0 || id > max_id()) continue;
    auto const& entry = state_->entries[static_cast<std::size_t>(id)];
    if (!entry.special || special == SpecialTokens::keep) bytes += entry.bytes;
  }
  append_valid_utf8(bytes, out);
  return out;
}

std::int32_t Tokenizer::find(std::string_view token) const {
  auto const found = state_->about.model.vocabulary.find(std::string(token));
  return found == state_->about.model.vocabulary.end() ? -1 : found->second;
}

std::int64_t Tokenizer::vocabulary_size() const {
  return std::ranges::count_if(state_->entries, [](auto const& entry) { return entry.present; });
}
std::int32_t Tokenizer::max_id() const {
  return static_cast<std::int32_t>(state_->entries.size()) - 1;
}
std::int64_t Tokenizer::model_max_length() const { return state_->about.model_max_length; }
std::int32_t Tokenizer::eos_id() const { return state_->about.eos_id; }
std::uint64_t Tokenizer::fingerprint() const { return state_->about.fingerprint; }
std::vector<std::filesystem::path> const& Tokenizer::files() const { return state_->about.files; }

std::shared_ptr<Tokenizer> load_tokenizer(std::filesystem::path const& path) {
  return std::make_shared<Tokenizer>(path);
}

}  // namespace tessera::data
