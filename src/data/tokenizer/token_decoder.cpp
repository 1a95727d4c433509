#include "tokenizer/token_decoder.hpp"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/byte_alphabet.hpp"

namespace tessera::data::detail {
namespace {

std::string replaced(std::string const& text, std::string const& from, std::string const& to) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size())
    out.append(text, done, at - done).append(to);
  return out.append(text, done);
}

/// The byte that a token such as <0x0A> means.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  unsigned byte = 0;
  auto const [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return {};
  return static_cast<char>(byte);
}

/// Runs of byte tokens become their characters; a run that is not UTF-8 becomes U+FFFD per byte.
std::vector<std::string> join_bytes(std::vector<std::string> const& tokens) {
  std::vector<std::string> out;
  std::string run;
  auto const flush = [&] {
    if (is_utf8(run)) {
      if (!run.empty()) out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), "\uFFFD");
    }
    run.clear();
  };
  for (auto const& token : tokens) {
    if (auto const byte = fallback_byte(token)) {
      run.push_back(*byte);
    } else {
      flush();
      out.push_back(token);
    }
  }
  flush();
  return out;
}

std::string stripped(std::string text, std::string const& content, std::int64_t start,
                     std::int64_t stop) {
  for (; start > 0 && text.starts_with(content); --start) text.erase(0, content.size());
  for (; stop > 0 && text.ends_with(content); --stop) text.resize(text.size() - content.size());
  return text;
}

/// English punctuation and contractions without the space before them.
std::string cleaned_up(std::string text) {
  constexpr std::pair<char const*, char const*> replacements[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (auto const& [from, to] : replacements) text = replaced(text, from, to);
  return text;
}

/// Tokens with the prefix continue a word; others begin one.
std::string piece_of_word(std::string const& token, std::string const& prefix, bool is_first) {
  if (is_first) return token;
  return token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
}

}  // namespace

TokenDecoder::TokenDecoder(ConfigTree const& tree, std::string const& where) {
  if (!tree.is_null()) append(tree, where);
}

void TokenDecoder::append(ConfigTree const& tree, std::string const& where) {
  std::string const type = tree.get_string("type", "");
  TESSERA_VALIDATE(steps_.size() < 64, ConfigError, where, ": more than 64 steps in a decoder");
  auto const text = [&](char const* field) {
    std::string const value = tree.at(field).as_string();
    TESSERA_VALIDATE(!value.empty(), DataError, where, ".", field, " is empty");
    return value;
  };
  if (type == "Sequence") {
    auto const& steps = tree.at("decoders").as_array();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      std::string const at = concat(where, ".decoders[", i, "]");
      TESSERA_VALIDATE(steps[i].get_string("type", "") != "Sequence", ConfigError, at,
                       " is a Sequence in a Sequence; list its steps instead");
      append(steps[i], at);
    }
  } else if (type == "Replace") {
    auto const* from = tree.at("pattern").find("String");
    TESSERA_VALIDATE(from && !from->as_string().empty(), ConfigError, where,
                     ".pattern is not a String; Tessera reads no other pattern in a decoder");
    steps_.push_back({Kind::replace, from->as_string(), tree.at("content").as_string()});
  } else if (type == "ByteFallback") {
    steps_.push_back({Kind::byte_fallback});
  } else if (type == "Fuse") {
    steps_.push_back({Kind::fuse});
  } else if (type == "Strip") {
    steps_.push_back(
        {Kind::strip, text("content"), {}, tree.at("start").as_int(), tree.at("stop").as_int()});
  } else if (type == "Metaspace") {
    Step step{Kind::metaspace, tree.get_string("replacement", "\u2581")};
    step.drops_first =
        tree.get_string("prepend_scheme",
                        tree.get_bool("add_prefix_space", true) ? "always" : "never") != "never";
    steps_.push_back(step);
  } else if (type == "WordPiece") {
    Step step{Kind::word_piece, tree.get_string("prefix", "##")};
    step.cleans_up = tree.get_bool("cleanup", true);
    steps_.push_back(step);
  } else {
    throw ConfigError(concat(where, " has type '", type,
                             "'; for tokens of characters Tessera reads Replace, ByteFallback, "
                             "Fuse, Strip, Metaspace, WordPiece and a Sequence of them"));
  }
}

void TokenDecoder::apply(Step const& step, std::vector<std::string>& tokens) {
  switch (step.kind) {
    case Kind::replace:
      for (auto& token : tokens) token = replaced(token, step.from, step.to);
      break;
    case Kind::byte_fallback:
      tokens = join_bytes(tokens);
      break;
    case Kind::fuse:
      tokens = {join(tokens, "")};
      break;
    case Kind::strip:
      for (auto& token : tokens)
        token = stripped(std::move(token), step.from, step.start, step.stop);
      break;
    case Kind::metaspace:
      for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replaced(tokens[i], step.from, i == 0 && step.drops_first ? "" : " ");
      break;
    case Kind::word_piece:
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = piece_of_word(tokens[i], step.from, i == 0);
        if (step.cleans_up) tokens[i] = cleaned_up(tokens[i]);
      }
      break;
  }
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  for (auto const& step : steps_) apply(step, tokens);
  return join(tokens, steps_.empty() ? " " : "");
}

namespace {

std::vector<std::int32_t> template_ids(ConfigTree const& processor, std::string const& name,
                                       std::string const& where) {
  std::vector<std::int32_t> out;
  for (auto const& id : processor.at("special_tokens").at(name).at("ids").as_array()) {
    TESSERA_VALIDATE(id.as_int() >= 0 && id.as_int() <= INT32_MAX, DataError, where,
                     ".special_tokens.", name, ".ids holds ", id.as_int());
    out.push_back(static_cast<std::int32_t>(id.as_int()));
  }
  return out;
}

TemplateIds read_template(ConfigTree const& tree, std::string const& where) {
  TemplateIds out;
  bool after_text = false;
  for (auto const& piece : tree.at("single").as_array()) {
    if (auto const* special = piece.find("SpecialToken")) {
      auto const ids = template_ids(tree, special->at("id").as_string(), where);
      auto& side = after_text ? out.suffix : out.prefix;
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      TESSERA_VALIDATE(piece.contains("Sequence") && !after_text, DataError, where,
                       ".single must hold the text once; found ", piece.dump());
      after_text = true;
    }
  }
  TESSERA_VALIDATE(after_text, DataError, where, ".single leaves out the text itself");
  return out;
}

/// The id of a member such as "cls": ["[CLS]", 101].
std::int32_t pair_id(ConfigTree const& tree, char const* name, std::string const& where) {
  auto const& pair = tree.at(name);
  TESSERA_VALIDATE(pair.is_array() && pair.size() == 2 && is_token_id(pair.as_array()[1]),
                   DataError, where, ".", name, " is ", pair.dump(),
                   "; expected a token and its id");
  return static_cast<std::int32_t>(pair.as_array()[1].as_int());
}

}  // namespace

TemplateIds read_post_processor(ConfigTree const& tree, std::string const& where) {
  if (tree.is_null()) return {};
  std::string const type = tree.get_string("type", "");
  if (type == "ByteLevel")
    return {{}, {}, tree.get_bool("trim_offsets", true), tree.get_bool("add_prefix_space", true)};
  if (type == "TemplateProcessing") return read_template(tree, where);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {{pair_id(tree, "cls", where)},
            {pair_id(tree, "sep", where)},
            type == "RobertaProcessing" && tree.get_bool("trim_offsets", true),
            tree.get_bool("add_prefix_space", true)};
  TESSERA_VALIDATE(type == "Sequence", ConfigError, where, " has type '", type,
                   "'; Tessera reads ByteLevel, TemplateProcessing, BertProcessing, "
                   "RobertaProcessing and a Sequence of them");
  TemplateIds out;
  for (auto const& step : tree.at("processors").as_array()) {
    TemplateIds next = read_post_processor(step, where);
    out.prefix.insert(out.prefix.begin(), next.prefix.begin(), next.prefix.end());
    out.suffix.insert(out.suffix.end(), next.suffix.begin(), next.suffix.end());
    out.keeps_first_space = next.trims_offsets ? next.keeps_first_space : out.keeps_first_space;
    out.trims_offsets |= next.trims_offsets;
  }
  return out;
}

}  // namespace tessera::data::detail
