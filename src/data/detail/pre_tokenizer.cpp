#include "detail/pre_tokenizer.hpp"

#include "detail/regex.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

/// GPT-2's words: contractions; letters, digits or other characters with at most one space before
/// them; white space, except its last character, which belongs to the next word.
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
    throw ConfigError(concat(
        where, " has type '", type,
        "'; Tessera reads ByteLevel, and a Sequence of Split, Digits and a final ByteLevel"));
  }
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

}  // namespace tessera::data::detail
