#include "tokenizer/tokenizer_file.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/hash.hpp"
#include "tokenizer/sentence_piece.hpp"
#include "tokenizer/token_decoder.hpp"
#include "tokenizer/unigram.hpp"
#include "tokenizer/word_piece.hpp"

namespace tessera::data::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_file_bytes = std::int64_t{256} << 20;
constexpr std::size_t max_config_members = 10'000;

std::string read_bytes_of(fs::path const& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  TESSERA_VALIDATE(in && !fs::is_directory(file), IoError,
                   path_error("cannot read", file, in ? EISDIR : errno));
  auto const bytes = static_cast<std::int64_t>(in.tellg());
  TESSERA_VALIDATE(bytes >= 0 && bytes <= max_file_bytes && fs::is_regular_file(file), DataError,
                   file.string(), " has ", human_bytes(bytes),
                   " or is not a regular file; at most ", human_bytes(max_file_bytes), " are read");
  std::string text(static_cast<std::size_t>(bytes), '\0');
  in.seekg(0).read(text.data(), static_cast<std::streamsize>(text.size()));
  TESSERA_VALIDATE(in, IoError, path_error("cannot read", file, errno));
  return text;
}

/// Reads files and adds them to the fingerprint.
class Sources {
 public:
  std::string take(fs::path const& file, TokenizerFile& into) {
    std::string text = read_bytes_of(file);
    if (file.extension() == ".model") return hashed(std::move(text), file, into);  // no text
    require_narrow(text, file.string());
    return std::string(without_mark(hashed(std::move(text), file, into)));
  }
  ConfigTree take_json(fs::path const& file, TokenizerFile& into) {
    return ConfigTree::parse(take(file, into), file.string());
  }

 private:
  std::string hashed(std::string text, fs::path const& file, TokenizerFile& into) {
    std::uint64_t const sum = xxh3(text);
    hash_.update(&sum, sizeof sum);
    into.files.push_back(file);
    into.fingerprint = hash_.digest();
    return text;
  }
  Xxh3Stream hash_;
};

constexpr char const* named_tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
constexpr char const* token_lists[] = {"additional_special_tokens", "extra_special_tokens"};

/// Special tokens of tokenizer_config.json.
void read_special_tokens(ConfigTree const& config, std::string const& where,
                         AddedTokenList& added) {
  if (auto const* decoder = config.find("added_tokens_decoder")) {
    for (auto const& [key, value] : decoder->as_object()) {
      AddedToken token;
      auto const [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
      std::string const at = concat(where, ": added_tokens_decoder['", key, "']");
      TESSERA_VALIDATE(error == std::errc() && end == key.data() + key.size() && token.id >= 0 &&
                           token.id <= max_token_id,
                       DataError, at, " is not under a token id");
      added.add(read_added_token(value, token), at);
    }
  }
  for (char const* name : named_tokens)
    if (auto const* value = config.find(name); value && !value->is_null())
      added.add(read_special_token(*value), concat(where, ": ", name));
  for (char const* name : token_lists)
    if (auto const* list = config.find(name); list && list->is_array())
      for (auto const& value : list->as_array())
        added.add(read_special_token(value), concat(where, ": ", name));
}

/// model_max_length may be 1e30 ("no limit"); anything that large is the largest integer here.
std::int64_t read_max_length(ConfigTree const& config, std::string const& where) {
  auto const* value = config.find("model_max_length");
  if (!value || value->is_null()) return std::numeric_limits<std::int64_t>::max();
  double const length = value->as_double();
  TESSERA_VALIDATE(length >= 1, DataError, where, ": model_max_length is ", value->dump(),
                   "; it must be at least 1");
  return length >= 9.0e18 ? std::numeric_limits<std::int64_t>::max()
                          : static_cast<std::int64_t>(length);
}

constexpr char const* gpt2_end_of_text = "<|endoftext|>";

bool names_token(ConfigTree const& config, std::string const& content) {
  auto const is_it = [&](ConfigTree const& value) {
    return !value.is_null() && read_special_token(value).content == content;
  };
  for (char const* name : named_tokens)
    if (auto const* value = config.find(name); value && is_it(*value)) return true;
  return std::ranges::any_of(token_lists, [&](char const* name) {
    auto const* list = config.find(name);
    return list && list->is_array() && std::ranges::any_of(list->as_array(), is_it);
  });
}

/// added_tokens.json, {"token": id}, as the added_tokens_decoder that replaced it.
ConfigTree decoder_of(ConfigTree const& tree, ConfigTree const& config, fs::path const& file) {
  TESSERA_VALIDATE(tree.is_object(), DataError, file.string(), " holds ", tree.type_name(),
                   "; expected an object of tokens and ids");
  ConfigTree decoder = ConfigTree::object();
  for (auto const& [content, id] : tree.as_object()) {
    TESSERA_VALIDATE(is_token_id(id), DataError, file.string(), ": the id of '", content, "' is ",
                     id.dump());
    TESSERA_VALIDATE(!decoder.contains(id.dump()), DataError, file.string(), ": '", content,
                     "' has the id ", id.dump(), ", which another token has, too");
    bool const special = names_token(config, content);
    decoder.set(id.dump(), ConfigTree::object()
                               .set("content", content)
                               .set("special", special)
                               .set("normalized", !special));
  }
  return decoder;
}

/// tokenizer_config.json and the older files next to it. As transformers 5.24 does: where the first
/// has no added_tokens_decoder, special_tokens_map.json is read and wins, and so is
/// added_tokens.json.
ConfigTree read_config_files(fs::path const& folder, Sources& sources, TokenizerFile& out) {
  ConfigTree config = ConfigTree::object();
  for (char const* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!fs::exists(folder / name) || config.contains("added_tokens_decoder")) continue;
    ConfigTree const tree = sources.take_json(folder / name, out);
    TESSERA_VALIDATE(tree.is_object(), DataError, (folder / name).string(), " holds ",
                     tree.type_name(), "; expected an object");
    TESSERA_VALIDATE(tree.size() <= max_config_members, DataError, (folder / name).string(),
                     " has ", tree.size(), " members; at most ", max_config_members, " are read");
    for (auto const& [key, value] : tree.as_object()) config.set(key, value);
  }
  fs::path const added = folder / "added_tokens.json";
  if (!config.contains("added_tokens_decoder") && fs::exists(added))
    config.set("added_tokens_decoder", decoder_of(sources.take_json(added, out), config, added));
  return config;
}

std::int32_t named_id(ConfigTree const& config, char const* name, AddedTokenList const& added) {
  auto const* value = config.find(name);
  return added.find(value && !value->is_null() ? read_special_token(*value).content
                                               : gpt2_end_of_text);
}

/// Applies the configuration files: special tokens, add_prefix_space and model_max_length. Takes
/// the list of added tokens, which is complete then.
void apply_config(ConfigTree const& config, std::string const& where, AddedTokenList& added,
                  TokenizerFile& out) {
  read_special_tokens(config, where, added);
  if (auto const* prefix = config.find("add_prefix_space"); prefix && prefix->is_bool() &&
                                                            out.pre_tokenizer.byte_level &&
                                                            out.pre_tokenizer.rules.size() == 1)
    out.pre_tokenizer.rules[0].prefix = prefix->as_bool() ? Prefix::always : Prefix::never;
  out.model_max_length = read_max_length(config, where);
  out.bos_id = named_id(config, "bos_token", added);
  out.eos_id = named_id(config, "eos_token", added);
  out.added = added.take();
}

void read_tokenizer_json(fs::path const& file, TokenizerFile& out) {
  Sources sources;
  ConfigTree const tree = sources.take_json(file, out);
  std::string const where = file.string() + ": ";
  auto const member = [&](char const* name) {
    auto const* found = tree.find(name);
    return found ? *found : ConfigTree();
  };
  out.normalizer = Normalizer(member("normalizer"), where + "normalizer");
  out.pre_tokenizer = read_pre_tokenizer(member("pre_tokenizer"), where + "pre_tokenizer");
  bool const bytes = out.pre_tokenizer.byte_level;
  out.model = read_word_model(tree.at("model"), bytes ? Symbols::bytes : Symbols::characters,
                              where + "model");
  if (!bytes) out.decoder = TokenDecoder(member("decoder"), where + "decoder");
  if (auto const* post = tree.find("post_processor")) {
    TemplateIds ids = read_post_processor(*post, where + "post_processor");
    out.prefix_ids = std::move(ids.prefix);
    out.suffix_ids = std::move(ids.suffix);
    out.trims_offsets = ids.trims_offsets;
    out.keeps_first_space = ids.keeps_first_space;
  }
  AddedTokenList added(out.model.vocabulary);
  if (auto const* list = tree.find("added_tokens")) {
    for (std::size_t i = 0; i < list->as_array().size(); ++i) {
      auto const& entry = list->as_array()[i];
      std::string const at = concat(where, "added_tokens[", i, "]");
      AddedToken token;
      TESSERA_VALIDATE(is_token_id(entry.at("id")), DataError, at, ".id is ",
                       entry.at("id").dump());
      token.id = static_cast<std::int32_t>(entry.at("id").as_int());
      added.add(read_added_token(entry, token), at);
    }
  }
  apply_config(read_config_files(file.parent_path(), sources, out),
               (file.parent_path() / "tokenizer_config.json").string(), added, out);
}

/// The older form, read by GPT-2's own tokenizer class; what it does not contain has that class's
/// defaults.
void read_vocabulary_and_merges(fs::path const& folder, TokenizerFile& out) {
  Sources sources;
  fs::path const vocabulary = folder / "vocab.json", merges = folder / "merges.txt";
  ConfigTree tree = sources.take_json(vocabulary, out);
  BpeModel model = read_bpe_files(
      {std::move(tree), vocabulary.string(), sources.take(merges, out), merges.string()});
  out.model = {std::move(model.vocabulary), std::make_unique<Bpe>(std::move(model.tables)), true};
  out.pre_tokenizer = read_pre_tokenizer(
      ConfigTree(ConfigTree::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}}),
      vocabulary.string());
  AddedTokenList added(out.model.vocabulary);
  ConfigTree config = read_config_files(folder, sources, out);
  for (char const* name : {"bos_token", "eos_token", "unk_token"})
    if (!config.contains(name)) config.set(name, gpt2_end_of_text);
  apply_config(config, (folder / "tokenizer_config.json").string(), added, out);
  if (config.get_bool("add_bos_token", false) && out.bos_id >= 0)
    out.prefix_ids.push_back(out.bos_id);
  if (config.get_bool("add_eos_token", false) && out.eos_id >= 0)
    out.suffix_ids.push_back(out.eos_id);
}

/// How a tokenizer class uses tokenizer.model by default.
struct SentencePieceClass {
  char const* name;
  bool adds_bos, adds_eos;
};
constexpr SentencePieceClass sentence_piece_classes[] = {{"LlamaTokenizer", true, false},
                                                         {"CodeLlamaTokenizer", true, false},
                                                         {"GemmaTokenizer", true, false},
                                                         {"T5Tokenizer", false, true}};

SentencePieceClass class_of(ConfigTree const& config, fs::path const& file) {
  std::string name = config.get_string("tokenizer_class", "LlamaTokenizer");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  for (auto const& known : sentence_piece_classes)
    if (name == known.name) return known;
  throw ConfigError(concat(
      file.string(), ": its tokenizer_class is ", name,
      "; Tessera reads tokenizer.model of LlamaTokenizer, CodeLlamaTokenizer, GemmaTokenizer and "
      "T5Tokenizer. Convert it once: python -c \"import transformers; "
      "transformers.AutoTokenizer.from_pretrained('DIR').save_pretrained('DIR')\""));
}

TokenDecoder sentence_piece_decoder(bool drops_first_space) {
  ConfigTree steps = ConfigTree::parse(
      R"([{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
          {"type": "ByteFallback"}, {"type": "Fuse"}])",
      "decoder");
  if (drops_first_space)
    steps.push_back(ConfigTree::parse(R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})",
                                      "decoder"));
  return {ConfigTree(ConfigTree::Object{{"type", "Sequence"}, {"decoders", std::move(steps)}}),
          "decoder"};
}

/// The ids of the tokens that the configuration names (all_special_tokens).
std::vector<std::int32_t> named_ids(ConfigTree const& config, AddedTokenList const& added) {
  std::vector<std::int32_t> out;
  for (char const* name : named_tokens)
    if (auto const* value = config.find(name); value && !value->is_null())
      out.push_back(added.find(read_special_token(*value).content));
  for (char const* name : token_lists)
    if (auto const* list = config.find(name); list && list->is_array())
      for (auto const& value : list->as_array())
        out.push_back(added.find(read_special_token(value).content));
  return out;
}

/// tokenizer.model, as Hugging Face's slow tokenizers read it.
void read_sentence_piece(fs::path const& file, TokenizerFile& out) {
  Sources sources;
  std::string const bytes = sources.take(file, out);
  ConfigTree config = read_config_files(file.parent_path(), sources, out);
  SentencePieceClass const type = class_of(config, file);
  auto const* legacy = config.find("legacy");
  bool const every_text = !legacy || legacy->is_null() || legacy->as_bool();
  bool const adds_space = config.get_bool("add_prefix_space", true);
  auto model = std::make_unique<SentencePiece>(
      bytes, file.string(), every_text ? DummyPrefix::every_text : DummyPrefix::input);
  for (int id = 0; id < model->size(); ++id) out.model.vocabulary.emplace(model->piece(id), id);
  auto const name_token = [&](char const* name, int id) {
    if (id >= 0 && !config.contains(name)) config.set(name, model->piece(id));
  };
  name_token("bos_token", model->bos_id());
  name_token("eos_token", model->eos_id());
  name_token("unk_token", model->unknown_id());
  AddedTokenList added(out.model.vocabulary);
  apply_config(config, (file.parent_path() / "tokenizer_config.json").string(), added, out);
  if (!every_text) out.no_space_before = named_ids(config, added);
  for (auto& token : out.added) token.normalized = false;  // all are matched together
  if (config.get_bool("add_bos_token", type.adds_bos) && out.bos_id >= 0)
    out.prefix_ids.push_back(out.bos_id);
  if (config.get_bool("add_eos_token", type.adds_eos) && out.eos_id >= 0)
    out.suffix_ids.push_back(out.eos_id);
  out.prefixes_input = !every_text && adds_space;
  out.decoder = sentence_piece_decoder(every_text ? model->adds_prefix() : adds_space);
  out.model.encoder = std::move(model);
}

}  // namespace

TokenizerFile read_tokenizer_file(fs::path const& path) {
  bool const is_folder = fs::is_directory(path);
  fs::path const folder = is_folder ? path : path.parent_path();
  std::string const name = is_folder ? "" : path.filename().string();
  bool const in_two_files = name == "vocab.json" || name == "merges.txt";
  fs::path const single = is_folder ? folder / "tokenizer.json" : path;
  TESSERA_VALIDATE(is_folder || fs::exists(path), IoError, "no tokenizer at ", path.string(),
                   ": no such file or directory; give a directory with tokenizer.json, or "
                   "with vocab.json and merges.txt");
  TokenizerFile out;
  try {
    if (single.extension() == ".model") {
      read_sentence_piece(single, out);
      return out;
    }
    if (!in_two_files && fs::exists(single)) {
      read_tokenizer_json(single, out);
      return out;
    }
    bool const two_files = fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt");
    for (char const* model : {"tokenizer.model", "spiece.model"})
      if (!two_files && fs::exists(folder / model)) {
        read_sentence_piece(folder / model, out);
        return out;
      }
    TESSERA_VALIDATE(two_files || !fs::exists(folder / "vocab.txt"), ConfigError, folder.string(),
                     " has a tokenizer in vocab.txt, which Tessera does not read; convert it once: "
                     "python -c \"import transformers; "
                     "transformers.AutoTokenizer.from_pretrained('DIR').save_pretrained('DIR')\"");
    TESSERA_VALIDATE(two_files, IoError, "no tokenizer in ", folder.string(),
                     ": neither tokenizer.json nor tokenizer.model nor both vocab.json and "
                     "merges.txt exist");
    read_vocabulary_and_merges(folder, out);
  } catch (DataError const& e) {
    std::string const what = e.what();
    throw DataError(
        what.find(folder.string()) != std::string::npos ? what : concat(path.string(), ": ", what));
  }
  return out;
}

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
