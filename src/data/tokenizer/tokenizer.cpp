#include "tessera/data/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <optional>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/regex.hpp"
#include "tokenizer/token_positions.hpp"
#include "tokenizer/tokenizer_file.hpp"

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

/// Tokens that are matched in the normalized text are normalized themselves.
std::vector<AddedToken> normalized(std::vector<AddedToken> tokens,
                                   detail::Normalizer const& normalizer) {
  for (auto& token : tokens) token.content = normalizer.apply(token.content);
  std::erase_if(tokens, [](AddedToken const& token) { return token.content.empty(); });
  return tokens;
}

/// A compiled step of the pre-tokenizer.
struct Split {
  std::optional<detail::Regex> regex;
  detail::SplitRule rule;

  /// Text between the matches is a word of its own, or no word.
  bool simple() const {
    using enum detail::SplitBehavior;
    return rule.behavior == isolated || (rule.behavior == removed && rule.invert);
  }
};

/// The words of @p text by any behavior.
std::vector<detail::Span> spans_of(Split const& split, std::string_view text) {
  std::vector<detail::Span> pieces;
  std::vector<bool> is_match;
  auto const add = [&](std::size_t begin, std::size_t end, bool match) {
    if (begin == end) return;
    pieces.push_back({begin, end});
    is_match.push_back(match != split.rule.invert);
  };
  std::size_t done = 0;
  for (detail::Regex::Match match; done < text.size() && split.regex->search(text, done, match);
       done = match.end) {
    add(done, match.begin, false);
    add(match.begin, match.end, true);
  }
  add(done, text.size(), false);
  return detail::fold_pieces(pieces, is_match, split.rule.behavior);
}

constexpr std::string_view sentence_piece_space = "\u2581";

/// Prefixes a text with a space as LlamaTokenizer does where it is not legacy.
std::string with_prefix(std::string_view text) {
  std::string out(sentence_piece_space);
  while (!text.empty()) {
    bool const is_space = text.starts_with(sentence_piece_space);
    out.push_back(is_space ? ' ' : text[0]);
    text.remove_prefix(is_space ? sentence_piece_space.size() : 1);
  }
  return out;
}

std::string in_alphabet(std::string_view bytes) {
  std::string out;
  for (char const c : bytes) out += detail::byte_token(static_cast<unsigned char>(c));
  return out;
}

/// A piece of text, whose first `start` bytes come from the first character of the input.
struct Piece {
  std::string_view text;
  std::size_t start = 0;

  Piece part(std::size_t begin, std::size_t end) const {
    return {text.substr(begin, end - begin), std::max(begin, std::min(start, end)) - begin};
  }
};

/// Writes the text's spaces as the step wants them, and its prefix, to @p out, which @p piece views
/// then; nothing if nothing changes.
void respaced(detail::SplitRule const& rule, Piece& piece, std::string& out) {
  std::string_view const text = piece.text;
  std::string const prefix = rule.prefix_text();
  bool const begins = !rule.space.empty() && text.starts_with(' ');
  bool const wants = rule.prefix == detail::Prefix::always ||
                     (rule.prefix == detail::Prefix::first && piece.start > 0);
  bool const adds = wants && !begins && !text.starts_with(prefix);
  if (!adds && (rule.space.empty() || text.find(' ') == std::string_view::npos)) return;
  out.reserve(text.size() + prefix.size());
  if (adds) out = prefix;
  std::size_t start = piece.start > 0 ? out.size() : 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' && !rule.space.empty())
      out += rule.space;
    else
      out += text[i];
    if (i < piece.start) start = out.size();
  }
  piece = {out, start};
}

}  // namespace

struct Tokenizer::State {
  struct Entry {
    std::string bytes;  ///< the text of the token
    bool present = false, special = false;
  };

  explicit State(detail::TokenizerFile file)
      : raw_added(tokens_with(file.added, false)),
        normalized_added(normalized(tokens_with(file.added, true), file.normalizer)) {
    for (auto const& [token, id] : file.model.vocabulary)
      put(id, file.pre_tokenizer.byte_level ? detail::bytes_of_token(token).value_or(token) : token,
          false);
    for (auto const& token : file.added) {
      put(token.id, token.normalized ? file.normalizer.apply(token.content) : token.content,
          token.special);
      file.model.vocabulary.emplace(token.content, token.id);
    }
    for (auto const& rule : file.pre_tokenizer.rules) {
      std::optional<detail::Regex> regex;
      if (!rule.pattern.empty())
        regex.emplace(rule.pattern, file.files.front().string() + ": pre_tokenizer");
      splits.push_back({std::move(regex), rule});
    }
    about = std::move(file);
  }

  void put(std::int32_t id, std::string bytes, bool special) {
    if (static_cast<std::size_t>(id) >= entries.size())
      entries.resize(static_cast<std::size_t>(id) + 1);
    entries[static_cast<std::size_t>(id)] = {std::move(bytes), true, special};
  }

  template <class Visit>
  void split_piece(Piece piece, std::size_t step, Visit const& visit);
  void encode_piece(Piece piece, Ids& out) {
    split_piece(piece, 0, [&](std::string_view word) { encode_word(word, out); });
  }
  void encode_word(std::string_view word, Ids& out);
  void encode_plain(Piece piece, Ids& out);
  template <class Done>
  void encode_pieces(std::string_view text, Ids& out, Done const& done);
  void encode(std::string_view text, Ids& out);
  void mark(std::string_view text, TextSpan piece, std::span<std::int32_t const> ids,
            detail::SpanMarker& marker) const;
  void drop_lone_space(Ids& ids, std::size_t begin) const;

  detail::TokenizerFile about;  ///< its vocabulary holds the added tokens too
  std::vector<Entry> entries;   ///< by id
  detail::AddedTokenMatcher raw_added, normalized_added;
  std::vector<Split> splits;
};

/// Applies the pre-tokenizer from @p step on, and visits the words that result.
template <class Visit>
void Tokenizer::State::split_piece(Piece piece, std::size_t step, Visit const& visit) {
  if (piece.text.empty()) return;
  if (step == splits.size()) return visit(piece.text);
  Split const& split = splits[step];
  std::string changed;
  respaced(split.rule, piece, changed);
  std::string_view const text = piece.text;
  auto const word = [&](std::size_t begin, std::size_t end) {
    Piece const part = piece.part(begin, end);
    if (!split.rule.writes_alphabet) return split_piece(part, step + 1, visit);
    std::string const written = in_alphabet(part.text);
    split_piece({written, in_alphabet(part.text.substr(0, part.start)).size()}, step + 1, visit);
  };
  if (!split.regex) return word(0, text.size());
  if (!split.simple()) {
    for (auto const& span : spans_of(split, text)) word(span.begin, span.end);
    return;
  }
  bool const keep_gaps = split.rule.behavior == detail::SplitBehavior::isolated;
  std::size_t done = 0;
  for (detail::Regex::Match match; done < text.size() && split.regex->search(text, done, match);
       done = match.end) {
    if (keep_gaps) word(done, match.begin);
    word(match.begin, match.end);
  }
  if (keep_gaps) word(done, text.size());
}

void Tokenizer::State::encode_word(std::string_view word, Ids& out) {
  bool const written = about.pre_tokenizer.in_alphabet;
  if (!about.pre_tokenizer.byte_level || written != about.model.takes_bytes)
    about.model.encoder->encode(word, out);
  else if (written)
    about.model.encoder->encode(*detail::bytes_of_token(word), out);
  else
    about.model.encoder->encode(in_alphabet(word), out);
}

/// Encodes text between the added tokens that are matched before normalization.
void Tokenizer::State::encode_plain(Piece piece, Ids& out) {
  detail::Normalizer::Result normalized;
  if (!about.normalizer.empty()) {
    normalized = about.normalizer.normalize(piece.text);
    piece = {normalized.text, piece.start > 0 ? normalized.start : 0};
  }
  if (normalized_added.empty()) return encode_piece(piece, out);
  std::vector<detail::AddedTokenMatcher::Piece> pieces;
  normalized_added.split(piece.text, pieces);
  for (auto const& part : pieces) {
    auto const at = static_cast<std::size_t>(part.text.data() - piece.text.data());
    if (part.id >= 0)
      out.push_back(part.id);
    else
      encode_piece(piece.part(at, at + part.text.size()), out);
  }
}

/// Drops a lone space at the start before one of `no_space_before`, as LlamaTokenizer does where it
/// is not legacy.
void Tokenizer::State::drop_lone_space(Ids& ids, std::size_t begin) const {
  if (about.no_space_before.empty() || ids.size() < begin + 2) return;
  bool const is_space = entries[static_cast<std::size_t>(ids[begin])].bytes == sentence_piece_space;
  if (is_space && std::ranges::count(about.no_space_before, ids[begin + 1]) > 0)
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(begin));
}

/// Encodes text between the ids of the post_processor; calls @p done after each piece between added
/// tokens and each of these.
template <class Done>
void Tokenizer::State::encode_pieces(std::string_view text, Ids& out, Done const& done) {
  std::vector<detail::AddedTokenMatcher::Piece> pieces;
  raw_added.split(text, pieces);
  std::size_t first = 0;  // bytes of the first character
  if (!text.empty()) next_code_point(text, first);
  for (auto const& piece : pieces) {
    if (piece.id >= 0)
      out.push_back(piece.id);
    else
      encode_plain({piece.text, piece.text.data() == text.data() ? first : 0}, out);
    done(piece);
  }
}

void Tokenizer::State::encode(std::string_view text, Ids& out) {
  out.insert(out.end(), about.prefix_ids.begin(), about.prefix_ids.end());
  std::string prefixed;
  if (about.prefixes_input && !text.empty()) text = prefixed = with_prefix(text);
  std::size_t const begin = out.size();
  encode_pieces(text, out, [](auto const&) {});
  drop_lone_space(out, begin);
  out.insert(out.end(), about.suffix_ids.begin(), about.suffix_ids.end());
}

/// Marks the tokens of text between added tokens.
void Tokenizer::State::mark(std::string_view text, TextSpan piece,
                            std::span<std::int32_t const> ids, detail::SpanMarker& marker) const {
  std::string_view const part = text.substr(piece.begin, piece.end - piece.begin);
  std::vector<std::string> surfaces;
  for (std::int32_t const id : ids) surfaces.push_back(entries[static_cast<std::size_t>(id)].bytes);
  std::string const whole = about.normalizer.apply(part);
  detail::TokenPositions const positions(whole, surfaces);
  auto const moved = [&](std::size_t at) {
    if (at <= piece.begin) return std::size_t{0};
    if (at >= piece.end) return positions.end() + (at > piece.end);  // beyond an empty last token
    std::string const before = about.normalizer.apply(part.substr(0, at - piece.begin));
    TESSERA_VALIDATE(whole.starts_with(before), DataError,
                     "the normalizer of the tokenizer joins text at the border of what an "
                     "assistant wrote, so its tokens cannot be told apart");
    return positions.of_prefix(before);
  };
  marker.begin_piece(piece, moved);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    TextSpan token = positions[i];
    if (about.trims_offsets && about.pre_tokenizer.byte_level)
      token = detail::without_spaces(
          token, surfaces[i], piece.begin == 0 && token.begin == 0 && about.keeps_first_space);
    marker.add(token);
  }
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

void Tokenizer::encode_spans(std::string_view text, std::span<TextSpan const> spans, Ids& out,
                             std::vector<std::uint8_t>& inside) const {
  TESSERA_VALIDATE(is_utf8(text) && text.size() < std::size_t{1} << 30, DataError, "a text of ",
                   text.size(), " bytes is not UTF-8 or too long to be tokenized in one call");
  TESSERA_VALIDATE(spans.empty() || !state_->about.prefixes_input, DataError,
                   "a slow SentencePiece tokenizer has no offsets, so tokens of assistants cannot "
                   "be told apart; convert it to tokenizer.json");
  std::string prefixed;
  std::size_t const begin = out.size();
  if (state_->about.prefixes_input && !text.empty()) text = prefixed = with_prefix(text);
  detail::SpanMarker marker(spans, inside);
  std::size_t encoded = begin;
  state_->encode_pieces(text, out, [&](detail::AddedTokenMatcher::Piece const& piece) {
    std::span<std::int32_t const> const ids = std::span(out).subspan(encoded);
    auto const at = static_cast<std::size_t>(piece.text.data() - text.data());
    TextSpan const range{at, at + piece.text.size()};
    encoded = out.size();
    if (spans.empty()) return inside.resize(inside.size() + ids.size());
    if (piece.id < 0) return state_->mark(text, range, ids, marker);
    marker.begin_piece(range, [](std::size_t place) { return place; });
    marker.add(range);
  });
  state_->drop_lone_space(out, begin);
  inside.resize(inside.size() - (encoded - out.size()));
}

std::string Tokenizer::decode(std::span<std::int32_t const> ids, SpecialTokens special) const {
  std::vector<std::string> tokens;
  for (std::int32_t const id : ids) {
    if (id < 0 || id > max_id()) continue;
    auto const& entry = state_->entries[static_cast<std::size_t>(id)];
    if (entry.present && (!entry.special || special == SpecialTokens::keep))
      tokens.push_back(entry.bytes);
  }
  std::string out;
  bool const bytes = state_->about.pre_tokenizer.byte_level;
  append_valid_utf8(bytes ? join(tokens, "") : state_->about.decoder.decode(std::move(tokens)),
                    out);
  return out;
}

void Tokenizer::for_each_word(std::string_view text,
                              std::function<void(std::string_view)> const& visit) const {
  std::string const normalized = state_->about.normalizer.apply(text);
  bool const written = state_->about.pre_tokenizer.in_alphabet;
  state_->split_piece({normalized, true}, 0, [&](std::string_view word) {
    visit(written ? *detail::bytes_of_token(word) : word);
  });
}
bool Tokenizer::byte_level() const { return state_->about.pre_tokenizer.byte_level; }

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
