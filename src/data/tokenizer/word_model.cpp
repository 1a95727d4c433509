#include "tokenizer/word_model.hpp"

#include <utility>

#include "tessera/core/error.hpp"
#include "tokenizer/bpe_model.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/unigram.hpp"
#include "tokenizer/word_piece.hpp"

namespace tessera::data::detail {
namespace {

std::pair<std::string, double> read_scored_token(ConfigTree const& entry, std::string const& at) {
  TESSERA_VALIDATE(entry.is_array() && entry.size() == 2 && entry.as_array()[0].is_string() &&
                       entry.as_array()[1].is_number(),
                   DataError, at, " is ", entry.dump(), "; expected a token and its score");
  return {entry.as_array()[0].as_string(), entry.as_array()[1].as_double()};
}

WordModel read_unigram(ConfigTree const& model, std::string const& where) {
  auto const& entries = model.at("vocab").as_array();
  TESSERA_VALIDATE(!entries.empty() && entries.size() <= static_cast<std::size_t>(max_token_id),
                   DataError, where, ".vocab has ", entries.size(), " tokens; from 1 to ",
                   max_token_id, " are read");
  WordModel out;
  UnigramTables tables;
  for (std::size_t id = 0; id < entries.size(); ++id) {
    tables.tokens.push_back(read_scored_token(entries[id], concat(where, ".vocab[", id, "]")));
    out.vocabulary[tables.tokens.back().first] = static_cast<std::int32_t>(id);
  }
  if (auto const* unknown = model.find("unk_id"); unknown && !unknown->is_null()) {
    TESSERA_VALIDATE(
        is_token_id(*unknown) && static_cast<std::size_t>(unknown->as_int()) < entries.size(),
        DataError, where, ".unk_id is ", unknown->dump(), "; the vocabulary has ", entries.size(),
        " tokens");
    tables.unknown_id = static_cast<std::int32_t>(unknown->as_int());
  }
  tables.byte_ids.fill(-1);
  if (model.get_bool("byte_fallback", false))
    for (unsigned byte = 0; byte < 256; ++byte)
      if (auto const found = out.vocabulary.find(fallback_token(byte));
          found != out.vocabulary.end())
        tables.byte_ids[byte] = found->second;
  out.encoder = std::make_unique<Unigram>(tables);
  return out;
}

WordModel read_word_piece(ConfigTree const& model, std::string const& where) {
  WordPieceTables tables;
  read_vocabulary(model.at("vocab"), where + ".vocab", tables.vocabulary);
  std::string const unknown = model.get_string("unk_token", "[UNK]");
  auto const found = tables.vocabulary.find(unknown);
  TESSERA_VALIDATE(found != tables.vocabulary.end(), DataError, where, ".unk_token is '", unknown,
                   "', which is not in the vocabulary");
  tables.unknown_id = found->second;
  tables.continuing_prefix = model.get_string("continuing_subword_prefix", "##");
  std::int64_t const characters = model.get_int("max_input_chars_per_word", 100);
  TESSERA_VALIDATE(characters >= 0, DataError, where, ".max_input_chars_per_word is ", characters);
  tables.max_characters = static_cast<std::size_t>(characters);
  WordModel out;
  out.encoder = std::make_unique<WordPiece>(tables);
  out.vocabulary = std::move(tables.vocabulary);
  return out;
}

/// Old files leave the type out.
std::string type_of(ConfigTree const& model) {
  char const* implied = model.contains("merges")                      ? "BPE"
                        : model.contains("continuing_subword_prefix") ? "WordPiece"
                        : model.contains("unk_id")                    ? "Unigram"
                                                                      : "";
  return model.get_string("type", implied);
}

}  // namespace

WordModel read_word_model(ConfigTree const& model, Symbols symbols, std::string const& where) {
  std::string const type = type_of(model);
  if (type == "Unigram") return read_unigram(model, where);
  if (type == "WordPiece") return read_word_piece(model, where);
  TESSERA_VALIDATE(type == "BPE", ConfigError, where, ".type is '", type,
                   "'; Tessera reads BPE, Unigram and WordPiece");
  BpeModel bpe = read_bpe_model(model, symbols, where);
  return {std::move(bpe.vocabulary), std::make_unique<Bpe>(std::move(bpe.tables)),
          symbols == Symbols::bytes};
}

}  // namespace tessera::data::detail
