#include "tessera/data/sequences/tokenizer_training.hpp"

#include <string>
#include <unordered_map>

#include "sequences/bpe_trainer.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"
#include "tessera/data/text/text_files.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"
#include "text/record_files.hpp"
#include "tokenizer/byte_alphabet.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr char const* gpt2_parts = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 0, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": true},
  "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false,
                     "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
              "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": {}, "merges": []}
})";
constexpr char const* gpt2_config = R"({
  "tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024, "bos_token": "<|endoftext|>",
  "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "add_prefix_space": false
})";

struct Parts {
  ConfigTree tokenizer, config;
  bool byte_level = true;
};

Parts read_parts(fs::path const& like) {
  if (like.empty())
    return {ConfigTree::parse(gpt2_parts, "GPT-2"), ConfigTree::parse(gpt2_config, "GPT-2")};
  TESSERA_VALIDATE(fs::exists(like), IoError, "no tokenizer at ", like.string(),
                   ": no such file or directory; give a directory with tokenizer.json");
  fs::path const folder = fs::is_directory(like) ? like : like.parent_path();
  Parts out;
  out.tokenizer = ConfigTree::read((folder / "tokenizer.json").string());
  std::string const type = out.tokenizer.at("model").get_string("type", "BPE");
  TESSERA_VALIDATE(type == "BPE", ConfigError, "the tokenizer of ", like.string(), " is ", type,
                   "; Tessera trains BPE only. Give --like a BPE tokenizer, or train with the "
                   "Python package tokenizers");
  fs::path const config = folder / "tokenizer_config.json";
  out.config = fs::exists(config) ? ConfigTree::read(config.string()) : ConfigTree::object();
  out.config.erase("added_tokens_decoder");  // has the old ids
  out.byte_level = Tokenizer(folder).byte_level();
  return out;
}

/// A tokenizer that splits as the new one will: any vocabulary serves. It has no special tokens,
/// because the trainer sees their text as text.
Tokenizer splitter_of(Parts const& parts, fs::path const& folder) {
  ConfigTree tree = parts.tokenizer;
  ConfigTree::Object vocabulary;
  for (unsigned byte = 0; byte < 256; ++byte)
    vocabulary.emplace_back(detail::byte_token(byte), static_cast<int>(byte));
  tree["model"]
      .set("vocab", ConfigTree(std::move(vocabulary)))
      .set("merges", ConfigTree::array())
      .set("unk_token", ConfigTree())
      .set("byte_fallback", false);
  tree.set("added_tokens", ConfigTree::array()).set("post_processor", ConfigTree());
  fs::path const place = folder / ".splitter";
  fs::create_directories(place);
  write_file_atomically(place / "tokenizer.json", tree.dump());
  ConfigTree config = ConfigTree::object();
  if (auto const* prefix = parts.config.find("add_prefix_space"))
    config.set("add_prefix_space", *prefix);
  write_file_atomically(place / "tokenizer_config.json", config.dump());
  Tokenizer out(place);
  fs::remove_all(place);
  return out;
}

using WordCounts = std::unordered_map<std::string, std::int64_t>;

/// The words as the trainer sees them: bytes written in the byte alphabet.
WordCounts count_words(Tokenizer const& splitter, bool byte_level, fs::path const& text) {
  detail::RecordFiles files(find_text_files(text), LineBreaks::keep, BrokenRecords::stop);
  WordCounts raw;
  for (std::string record; files.next(record);)
    splitter.for_each_word(record, [&](std::string_view word) { ++raw[std::string(word)]; });
  TESSERA_VALIDATE(!raw.empty(), DataError, text.string(), " has no words to train from");
  if (!byte_level) return raw;
  WordCounts out;
  for (auto const& [word, count] : raw) {
    std::string written;
    for (char const c : word) written += detail::byte_token(static_cast<unsigned char>(c));
    out.emplace(std::move(written), count);
  }
  return out;
}

/// Special tokens keep their flags and get the ids of their order; other added tokens go.
std::vector<std::string> take_special_tokens(ConfigTree& tokenizer) {
  std::vector<std::string> out;
  ConfigTree kept = ConfigTree::array();
  if (auto const* added = tokenizer.find("added_tokens"))
    for (auto token : added->as_array()) {
      if (!token.get_bool("special", false)) continue;
      token.set("id", static_cast<std::int64_t>(out.size()));
      out.push_back(token.at("content").as_string());
      kept.push_back(std::move(token));
    }
  tokenizer.set("added_tokens", std::move(kept));
  return out;
}

using TokenIds = std::unordered_map<std::string, std::int64_t>;

/// The entry of a special token in TemplateProcessing, with its new ids.
ConfigTree renumbered_token(ConfigTree token, TokenIds const& ids) {
  ConfigTree numbers = ConfigTree::array();
  for (auto const& content : token.at("tokens").as_array()) {
    auto const found = ids.find(content.as_string());
    TESSERA_VALIDATE(found != ids.end(), ConfigError, "the post_processor names the token '",
                     content.as_string(), "', which is not a special token");
    numbers.push_back(ConfigTree(found->second));
  }
  token.set("ids", std::move(numbers));
  return token;
}

/// A post_processor with the new ids of its special tokens.
ConfigTree renumbered(ConfigTree processor, TokenIds const& ids) {
  if (auto const* steps = processor.find("processors")) {
    ConfigTree out = ConfigTree::array();
    for (auto const& step : steps->as_array()) out.push_back(renumbered(step, ids));
    processor.set("processors", std::move(out));
  }
  if (auto const* tokens = processor.find("special_tokens")) {
    ConfigTree out = ConfigTree::object();
    for (auto const& [name, token] : tokens->as_object())
      out.set(name, renumbered_token(token, ids));
    processor.set("special_tokens", std::move(out));
  }
  return processor;
}

void write_tokenizer(Parts parts, detail::TrainedBpe const& trained, fs::path const& folder) {
  ConfigTree::Object vocabulary;
  TokenIds ids;
  for (std::size_t id = 0; id < trained.tokens.size(); ++id) {
    vocabulary.emplace_back(trained.tokens[id], static_cast<std::int64_t>(id));
    ids.emplace(trained.tokens[id], static_cast<std::int64_t>(id));
  }
  ConfigTree::Array merges;
  for (auto const& [left, right] : trained.merges)
    merges.push_back(
        ConfigTree(ConfigTree::Array{trained.tokens[static_cast<std::size_t>(left)],
                                     trained.tokens[static_cast<std::size_t>(right)]}));
  parts.tokenizer["model"]
      .set("vocab", ConfigTree(std::move(vocabulary)))
      .set("merges", ConfigTree(std::move(merges)));
  if (parts.tokenizer.contains("post_processor"))
    parts.tokenizer.set("post_processor", renumbered(parts.tokenizer.at("post_processor"), ids));
  write_file_atomically(folder / "tokenizer.json", parts.tokenizer.dump() + "\n");
  write_file_atomically(folder / "tokenizer_config.json", parts.config.dump(2) + "\n");
}

}  // namespace

std::int64_t train_tokenizer(TokenizerTrainingRequest const& request) {
  Parts parts = read_parts(request.like);
  std::error_code error;
  fs::create_directories(request.output, error);
  TESSERA_VALIDATE(!error, IoError, "cannot create the directory ", request.output.string(), ": ",
                   error.message());
  Tokenizer const splitter = splitter_of(parts, request.output);
  WordCounts const words = count_words(splitter, parts.byte_level, request.text);
  detail::BpeTrainingOptions options;
  options.vocabulary_size = request.vocabulary_size;
  options.min_frequency = request.min_frequency;
  options.special_tokens = take_special_tokens(parts.tokenizer);
  if (parts.byte_level)
    for (unsigned byte = 0; byte < 256; ++byte)
      options.alphabet.push_back(detail::byte_token(byte));
  auto const least =
      static_cast<std::int64_t>(options.special_tokens.size() + options.alphabet.size());
  TESSERA_VALIDATE(options.vocabulary_size > least, ConfigError, "vocab_size is ",
                   options.vocabulary_size, "; the special tokens and the alphabet need ", least,
                   " already");
  detail::TrainedBpe const trained = detail::train_bpe(words, options);
  write_tokenizer(std::move(parts), trained, request.output);
  return static_cast<std::int64_t>(trained.tokens.size());
}

}  // namespace tessera::data
