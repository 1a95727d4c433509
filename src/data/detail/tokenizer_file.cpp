#include "detail/tokenizer_file.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <unordered_map>

#include "detail/byte_alphabet.hpp"
#include "detail/hash.hpp"
#include "detail/post_processor.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_token_id =
    (std::int64_t{1} << 22) - 1;  // far above any vocabulary; bounds what a broken file can ask for
constexpr std::int64_t max_file_bytes = std::int64_t{256} << 20;
constexpr std::size_t max_config_members = 10'000;

std::string read_bytes_of(fs::path const& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  TESSERA_VALIDATE(in && !fs::is_directory(file), IoError,
                   with_errno("cannot read " + file.string(), in ? EISDIR : errno));
  auto const bytes = static_cast<std::int64_t>(in.tellg());
  TESSERA_VALIDATE(bytes >= 0 && bytes <= max_file_bytes && fs::is_regular_file(file), DataError,
                   file.string(), " has ", bytes, " bytes or is not a regular file; at most ",
                   max_file_bytes, " bytes are read");
  std::string text(static_cast<std::size_t>(bytes), '\0');
  in.seekg(0).read(text.data(), static_cast<std::streamsize>(text.size()));
  TESSERA_VALIDATE(in, IoError, with_errno("cannot read " + file.string(), errno));
  return text;
}

/// Reads files and adds them to the fingerprint.
class Sources {
 public:
  std::string take(fs::path const& file, TokenizerFile& into) {
    std::string text = read_bytes_of(file);
    std::uint64_t const sum = xxh3(text);
    hash_.update(&sum, sizeof sum);
    into.files.push_back(file);
    into.fingerprint = hash_.digest();
    return text;
  }
  ConfigTree take_json(fs::path const& file, TokenizerFile& into) {
    return ConfigTree::parse(take(file, into), file.string());
  }

 private:
  Xxh3Stream hash_;
};

bool is_token_id(ConfigTree const& value) {
  return value.is_int() && value.as_int() >= 0 && value.as_int() <= max_token_id;
}

/// Builds a message only on failure: a vocabulary has hundreds of thousands of entries.
void read_vocabulary(ConfigTree const& tree, std::string const& where, TokenizerFile& out) {
  auto const& members = tree.as_object();
  TESSERA_VALIDATE(!members.empty(), DataError, where, " is empty");
  out.vocabulary.reserve(members.size() * 2);
  std::vector<bool> used;
  for (auto const& [token, value] : members) {
    TESSERA_VALIDATE(is_token_id(value), DataError, where, "['", token, "'] is ", value.dump(),
                     "; a token id is an integer from 0 to ", max_token_id);
    auto const id = static_cast<std::size_t>(value.as_int());
    if (id >= used.size()) used.resize(id * 2 + 1);
    TESSERA_VALIDATE(!used[id], DataError, where, "['", token, "'] has the id ", id,
                     ", which another token has");
    used[id] = true;
    out.vocabulary.emplace(token, static_cast<std::int32_t>(id));
  }
}

/// Adds the merge of two tokens; @returns the error, or an empty string.
std::string add_merge(std::string const& left, std::string const& right, TokenizerFile& out) {
  Merge merge{};
  std::string const merged = left + right;
  for (auto const& [token, id] :
       {std::pair{&left, &merge.left}, {&right, &merge.right}, {&merged, &merge.result}}) {
    auto const found = out.vocabulary.find(*token);
    if (found == out.vocabulary.end())
      return concat("names '", *token, "', which is not in the vocabulary");
    *id = found->second;
  }
  out.bpe.merges.push_back(merge);
  return "";
}

/// "a b": neither token holds a space, which the byte alphabet writes as another character.
std::string add_merge_line(std::string const& line, TokenizerFile& out) {
  std::size_t const space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
    return concat("is '", line, "'; expected two tokens with a space between them");
  return add_merge(line.substr(0, space), line.substr(space + 1), out);
}

void read_merges(ConfigTree const& tree, std::string const& where, TokenizerFile& out) {
  auto const& merges = tree.as_array();
  out.bpe.merges.reserve(merges.size());
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

void read_merges_text(std::string const& text, std::string const& where, TokenizerFile& out) {
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

/// Finds each byte's own token. Where some are missing, unk_token decides, as in Hugging Face's
/// BPE.
void read_bytes(ConfigTree const& model, std::string const& where, TokenizerFile& out) {
  int missing = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    auto const found = out.vocabulary.find(byte_token(byte));
    out.bpe.byte_ids[byte] = found == out.vocabulary.end() ? -1 : found->second;
    missing += found == out.vocabulary.end();
  }
  TESSERA_VALIDATE(missing < 256, ConfigError, where,
                   ".vocab has none of the 256 byte tokens; it is not byte-level BPE");
  if (missing == 0) return;
  TESSERA_VALIDATE(!model.get_bool("byte_fallback", false), ConfigError, where,
                   ".byte_fallback is true and ", missing,
                   " of the 256 byte tokens are missing; Tessera reads byte-level BPE only");
  if (std::string const unknown = model.get_string("unk_token", ""); !unknown.empty()) {
    auto const found = out.vocabulary.find(unknown);
    TESSERA_VALIDATE(found != out.vocabulary.end(), DataError, where, ".unk_token is '", unknown,
                     "', which is not in the vocabulary");
    out.bpe.unknown_id = found->second;
  }
  out.bpe.fuse_unknown = model.get_bool("fuse_unk", false);
}

void read_model(ConfigTree const& model, std::string const& where, TokenizerFile& out) {
  std::string const type =
      model.get_string("type", model.contains("merges") ? "BPE" : "");  // old files leave it out
  TESSERA_VALIDATE(type == "BPE", ConfigError, where, ".type is '", type,
                   "'; Tessera reads byte-level BPE tokenizers only");
  auto const* dropout = model.find("dropout");
  TESSERA_VALIDATE(!dropout || dropout->is_null() || dropout->as_double() == 0, ConfigError, where,
                   ".dropout is ", dropout->dump(),
                   "; tokens would differ from run to run. Set it to null");
  for (char const* field : {"continuing_subword_prefix", "end_of_word_suffix"})
    TESSERA_VALIDATE(model.get_string(field, "").empty(), ConfigError, where, ".", field, " is '",
                     model.get_string(field, ""), "'; byte-level BPE has none");
  read_vocabulary(model.at("vocab"), where + ".vocab", out);
  read_merges(model.at("merges"), where + ".merges", out);
  read_bytes(model, where, out);
  if (!model.get_bool("ignore_merges", false)) return;
  for (auto const& [token, id] : out.vocabulary)
    if (auto bytes = bytes_of_token(token)) out.bpe.vocabulary_words.emplace(std::move(*bytes), id);
}

AddedToken read_added_token(ConfigTree const& tree, AddedToken token) {
  token.content = tree.at("content").as_string();
  token.special = tree.get_bool("special", token.special);
  token.single_word = tree.get_bool("single_word", false);
  token.lstrip = tree.get_bool("lstrip", false);
  token.rstrip = tree.get_bool("rstrip", false);
  token.normalized = tree.get_bool("normalized", !token.special);
  return token;
}

/// Collects added tokens; a token that is already in the list keeps its first description.
class AddedTokens {
 public:
  explicit AddedTokens(TokenizerFile& file) : file_(file) {
    for (auto const& [token, id] : file.vocabulary) take(id);
  }

  /// With id < 0 the token takes its id in the vocabulary, or the next free one.
  void add(AddedToken token, std::string const& where) {
    TESSERA_VALIDATE(!token.content.empty(), DataError, where, " is an empty token");
    if (find(token.content) >= 0) return;
    auto const known = file_.vocabulary.find(token.content);
    if (token.id < 0)
      token.id = known != file_.vocabulary.end() ? known->second
                                                 : static_cast<std::int32_t>(taken_.size());
    TESSERA_VALIDATE(known == file_.vocabulary.end() || known->second == token.id, DataError, where,
                     ": '", token.content, "' has the id ", token.id, " here and ", known->second,
                     " in the vocabulary");
    TESSERA_VALIDATE(take(token.id) || known != file_.vocabulary.end(), DataError, where, ": '",
                     token.content, "' has the id ", token.id, ", which belongs to another token");
    ids_.emplace(token.content, token.id);
    file_.added.push_back(std::move(token));
  }

  std::int32_t find(std::string const& content) const {
    auto const found = ids_.find(content);
    return found == ids_.end() ? -1 : found->second;
  }

 private:
  /// Marks an id as used; false if it was. The size of taken_ is the next free id.
  bool take(std::int32_t id) {
    if (static_cast<std::size_t>(id) >= taken_.size())
      taken_.resize(static_cast<std::size_t>(id) + 1);
    bool const is_new = !taken_[static_cast<std::size_t>(id)];
    taken_[static_cast<std::size_t>(id)] = true;
    return is_new;
  }

  TokenizerFile& file_;
  std::unordered_map<std::string, std::int32_t> ids_;  ///< of file_.added
  std::vector<bool> taken_;
};

constexpr char const* named_tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
constexpr char const* token_lists[] = {"additional_special_tokens", "extra_special_tokens"};

/// A special token is written as its text or as an object with the fields of AddedToken.
AddedToken special_token(ConfigTree const& value) {
  AddedToken token;
  token.special = true;
  token.normalized = false;
  if (value.is_object()) return read_added_token(value, token);
  token.content = value.as_string();
  return token;
}

/// Special tokens of tokenizer_config.json.
void read_special_tokens(ConfigTree const& config, std::string const& where, AddedTokens& added) {
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
      added.add(special_token(*value), concat(where, ": ", name));
  for (char const* name : token_lists)
    if (auto const* list = config.find(name); list && list->is_array())
      for (auto const& value : list->as_array())
        added.add(special_token(value), concat(where, ": ", name));
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

/// tokenizer_config.json, with the members that only the older special_tokens_map.json has.
ConfigTree read_config_files(fs::path const& folder, Sources& sources, TokenizerFile& out) {
  ConfigTree config = ConfigTree::object();
  for (char const* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!fs::exists(folder / name)) continue;
    ConfigTree const tree = sources.take_json(folder / name, out);
    TESSERA_VALIDATE(tree.is_object(), DataError, (folder / name).string(), " holds ",
                     tree.type_name(), "; expected an object");
    TESSERA_VALIDATE(tree.size() <= max_config_members, DataError, (folder / name).string(),
                     " has ", tree.size(), " members; at most ", max_config_members, " are read");
    for (auto const& [key, value] : tree.as_object())
      if (!config.contains(key)) config.set(key, value);
  }
  return config;
}

std::int32_t named_id(ConfigTree const& config, char const* name, AddedTokens const& added) {
  auto const* value = config.find(name);
  return added.find(value && !value->is_null() ? special_token(*value).content : gpt2_end_of_text);
}

/// Applies the configuration files: special tokens, add_prefix_space and model_max_length.
void apply_config(ConfigTree const& config, std::string const& where, AddedTokens& added,
                  TokenizerFile& out) {
  read_special_tokens(config, where, added);
  if (auto const* prefix = config.find("add_prefix_space");
      prefix && prefix->is_bool() && out.splits.size() == 1)
    out.splits[0].add_prefix_space = prefix->as_bool();
  out.model_max_length = read_max_length(config, where);
  out.bos_id = named_id(config, "bos_token", added);
  out.eos_id = named_id(config, "eos_token", added);
}

void read_tokenizer_json(fs::path const& file, TokenizerFile& out) {
  Sources sources;
  ConfigTree const tree = sources.take_json(file, out);
  std::string const where = file.string() + ": ";
  auto const* normalizer = tree.find("normalizer");
  TESSERA_VALIDATE(!normalizer || normalizer->is_null(), ConfigError, where, "normalizer is ",
                   normalizer->get_string("type", "of an unknown type"),
                   "; Tessera reads tokenizers without a normalizer. Normalize the text beforehand "
                   "and set it to null");
  read_model(tree.at("model"), where + "model", out);
  out.splits = read_pre_tokenizer(tree.at("pre_tokenizer"), where + "pre_tokenizer");
  if (auto const* post = tree.find("post_processor")) {
    TemplateIds ids = read_post_processor(*post, where + "post_processor");
    out.prefix_ids = std::move(ids.prefix);
    out.suffix_ids = std::move(ids.suffix);
  }
  AddedTokens added(out);
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
  read_vocabulary(sources.take_json(vocabulary, out), vocabulary.string(), out);
  read_merges_text(sources.take(merges, out), merges.string(), out);
  read_bytes(ConfigTree::object(), vocabulary.string(), out);
  out.splits = read_pre_tokenizer(
      ConfigTree(ConfigTree::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}}),
      vocabulary.string());
  AddedTokens added(out);
  ConfigTree config = read_config_files(folder, sources, out);
  for (char const* name : {"bos_token", "eos_token", "unk_token"})
    if (!config.contains(name)) config.set(name, gpt2_end_of_text);
  apply_config(config, (folder / "tokenizer_config.json").string(), added, out);
  if (config.get_bool("add_bos_token", false) && out.bos_id >= 0)
    out.prefix_ids.push_back(out.bos_id);
  if (config.get_bool("add_eos_token", false) && out.eos_id >= 0)
    out.suffix_ids.push_back(out.eos_id);
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
    if (!in_two_files && fs::exists(single)) {
      read_tokenizer_json(single, out);
      return out;
    }
    TESSERA_VALIDATE(fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt"),
                     IoError, "no tokenizer in ", folder.string(),
                     ": neither tokenizer.json nor both vocab.json and merges.txt exist");
    read_vocabulary_and_merges(folder, out);
  } catch (DataError const& e) {
    std::string const what = e.what();
    throw DataError(
        what.find(folder.string()) != std::string::npos ? what : concat(path.string(), ": ", what));
  }
  return out;
}

}  // namespace tessera::data::detail
