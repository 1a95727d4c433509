/// tokenizer.json: pre_tokenizer and post_processor.

#include "detail/regex.hpp"
#include "detail/tokenizer_file.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

/// GPT-2's words: contractions, then letters, digits or other signs with at most one space before
/// them, then white space, of which the last character is left for the word that follows.
constexpr char const* gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

SplitRule read_split(ConfigTree const& tree, std::string const& where) {
  auto const& pattern = tree.at("pattern");
  SplitRule rule;
  if (auto const* regex = pattern.find("Regex"))
    rule.pattern = regex->as_string();
  else if (auto const* literal = pattern.find("String"))
    rule.pattern = Regex::quote(literal->as_string());
  TESSERA_VALIDATE(!rule.pattern.empty(), DataError, where,
                   ".pattern has neither a Regex nor a String");
  std::string const behavior = tree.get_string("behavior", "");
  bool const invert = tree.get_bool("invert", false);
  bool const keeps_matches_only = behavior == "Removed" && invert;
  TESSERA_VALIDATE(behavior == "Isolated" || keeps_matches_only, ConfigError, where, ": behavior ",
                   behavior, " with invert ", invert ? "true" : "false",
                   " is not supported; Isolated, and Removed with invert true, are");
  rule.keep_gaps = !keeps_matches_only;
  return rule;
}

void append_rules(ConfigTree const& tree, std::string const& where, std::vector<SplitRule>& rules,
                  bool& byte_level) {
  TESSERA_VALIDATE(rules.size() < 64, ConfigError, where,
                   ": more than 64 steps in a pre_tokenizer");  // each is a level of recursion
  TESSERA_VALIDATE(!byte_level, ConfigError, where,
                   ": nothing may follow ByteLevel in a pre_tokenizer");
  std::string const type = tree.get_string("type", "");
  if (type == "Sequence") {
    auto const& steps = tree.at("pretokenizers").as_array();
    for (std::size_t i = 0; i < steps.size(); ++i)
      append_rules(steps[i], concat(where, ".pretokenizers[", i, "]"), rules, byte_level);
  } else if (type == "Split") {
    rules.push_back(read_split(tree, where));
  } else if (type == "Digits") {
    rules.push_back({tree.get_bool("individual_digits", false) ? "\\p{N}" : "\\p{N}+"});
  } else if (type == "ByteLevel") {
    byte_level = true;
    rules.push_back({tree.get_bool("use_regex", true) ? gpt2_words : "", true,
                     tree.get_bool("add_prefix_space", true)});
  } else {
    throw ConfigError(
        concat(where, " has type '", type,
               "'; Tessera reads ByteLevel, alone or after Split and Digits in a Sequence"));
  }
}

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

}  // namespace

std::vector<SplitRule> read_pre_tokenizer(ConfigTree const& tree, std::string const& where) {
  std::vector<SplitRule> rules;
  bool byte_level = false;
  append_rules(tree, where, rules, byte_level);
  TESSERA_VALIDATE(byte_level, ConfigError, where,
                   " has no ByteLevel step; Tessera reads byte-level BPE tokenizers only");
  return rules;
}

TemplateIds read_post_processor(ConfigTree const& tree, std::string const& where) {
  if (tree.is_null()) return {};
  std::string const type = tree.get_string("type", "");
  if (type == "ByteLevel") return {};  // it corrects offsets, not ids
  if (type == "TemplateProcessing") return read_template(tree, where);
  TESSERA_VALIDATE(type == "Sequence", ConfigError, where, " has type '", type,
                   "'; Tessera reads ByteLevel, TemplateProcessing and a Sequence of them");
  TemplateIds out;
  for (auto const& step : tree.at("processors").as_array()) {
    TemplateIds next = read_post_processor(step, where);
    out.prefix.insert(out.prefix.begin(), next.prefix.begin(), next.prefix.end());
    out.suffix.insert(out.suffix.end(), next.suffix.begin(), next.suffix.end());
  }
  return out;
}

}  // namespace tessera::data::detail
