#include "tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "tessera/core/error.hpp"
#include "tokenizer/regex.hpp"
#include "tokenizer/unicode_ranges.hpp"

namespace tessera::data::detail {
namespace {

/// GPT-2's words: contractions; letters, digits or other characters with at most one space before
/// them; white space, except its last character, which belongs to the next word.
constexpr char const* gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

SplitBehavior behavior_from(std::string const& name, std::string const& where) {
  using enum SplitBehavior;
  for (auto const& [known, behavior] : {std::pair{"Removed", removed},
                                        {"Isolated", isolated},
                                        {"MergedWithPrevious", merged_with_previous},
                                        {"MergedWithNext", merged_with_next},
                                        {"Contiguous", contiguous}})
    if (name == known) return behavior;
  throw DataError(concat(where, ".behavior is '", name,
                         "'; it is one of Removed, Isolated, MergedWithPrevious, MergedWithNext, "
                         "Contiguous"));
}

SplitRule read_split(ConfigTree const& tree, std::string const& where) {
  auto const& pattern = tree.at("pattern");
  SplitRule rule;
  if (auto const* regex = pattern.find("Regex"))
    rule.pattern = regex->as_string();
  else if (auto const* literal = pattern.find("String"))
    rule.pattern = Regex::quote(literal->as_string());
  TESSERA_VALIDATE(!rule.pattern.empty(), DataError, where,
                   ".pattern has neither a Regex nor a String");
  rule.behavior = behavior_from(tree.get_string("behavior", ""), where);
  rule.invert = tree.get_bool("invert", false);
  return rule;
}

/// Older files say add_prefix_space instead of prepend_scheme.
Prefix prefix_from(ConfigTree const& tree, std::string const& where) {
  std::string const scheme = tree.get_string(
      "prepend_scheme", tree.get_bool("add_prefix_space", true) ? "always" : "never");
  TESSERA_VALIDATE(scheme == "always" || scheme == "first" || scheme == "never", DataError, where,
                   ".prepend_scheme is '", scheme, "'; it is always, first or never");
  return scheme == "always" ? Prefix::always : scheme == "first" ? Prefix::first : Prefix::never;
}

SplitRule read_metaspace(ConfigTree const& tree, std::string const& where) {
  SplitRule rule;
  rule.space = tree.get_string("replacement", "\u2581");
  TESSERA_VALIDATE(!rule.space.empty(), DataError, where, ".replacement is empty");
  rule.prefix = prefix_from(tree, where);
  if (!tree.get_bool("split", true)) return rule;
  rule.pattern = Regex::quote(rule.space);
  rule.behavior = SplitBehavior::merged_with_next;
  return rule;
}

/// What Punctuation and BertPreTokenizer split off.
SplitRule punctuation_rule(SplitBehavior behavior) {
  std::string members = "[";
  char item[32];
  for (auto const& range : punctuation) {
    std::snprintf(item, sizeof item, "\\x{%X}-\\x{%X}", static_cast<unsigned>(range.first),
                  static_cast<unsigned>(range.last));
    members += item;
  }
  return {members + "]", behavior};
}

/// The step of a type that has no Sequence in it; no rule if the type is not known.
std::vector<SplitRule> rules_of(ConfigTree const& tree, std::string const& type,
                                std::string const& where) {
  using enum SplitBehavior;
  if (type == "Split") return {read_split(tree, where)};
  if (type == "Digits") return {{tree.get_bool("individual_digits", false) ? "\\p{N}" : "\\p{N}+"}};
  if (type == "Metaspace") return {read_metaspace(tree, where)};
  if (type == "Punctuation")
    return {punctuation_rule(behavior_from(tree.get_string("behavior", "Isolated"), where))};
  if (type == "Whitespace")
    return {{concat("[", word_members, "]+|[^", word_members, "\\s]+"), removed, true}};
  if (type == "WhitespaceSplit") return {{"\\s", removed}};
  if (type == "BertPreTokenizer") return {{"\\s", removed}, punctuation_rule(isolated)};
  if (type == "CharDelimiterSplit")
    return {{Regex::quote(tree.at("delimiter").as_string()), removed}};
  if (type != "ByteLevel") return {};
  SplitRule rule{tree.get_bool("use_regex", true) ? gpt2_words : ""};
  if (tree.get_bool("add_prefix_space", true)) rule.prefix = Prefix::always;
  return {rule};
}

void append_rules(ConfigTree const& tree, std::string const& where, PreTokenizer& out) {
  TESSERA_VALIDATE(out.rules.size() < 64, ConfigError, where,
                   ": more than 64 steps in a pre_tokenizer");  // each is a level of recursion
  std::string const type = tree.get_string("type", "");
  if (type == "Sequence") {
    auto const& steps = tree.at("pretokenizers").as_array();
    for (std::size_t i = 0; i < steps.size(); ++i)
      append_rules(steps[i], concat(where, ".pretokenizers[", i, "]"), out);
    return;
  }
  auto rules = rules_of(tree, type, where);
  TESSERA_VALIDATE(!rules.empty(), ConfigError, where, " has type '", type,
                   "'; Tessera reads Metaspace, Split, Digits, Punctuation, Whitespace, "
                   "WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, ByteLevel, and a "
                   "Sequence of them");
  TESSERA_VALIDATE(!out.byte_level || (type != "ByteLevel" && type != "Metaspace"), ConfigError,
                   where, ": ", type,
                   " follows ByteLevel in a pre_tokenizer, whose words have no spaces; remove it");
  if (out.byte_level && !out.in_alphabet) {
    out.in_alphabet = true;
    out.rules.back().writes_alphabet = true;
  }
  out.byte_level = out.byte_level || type == "ByteLevel";
  std::ranges::move(rules, std::back_inserter(out.rules));
}

bool joins(SplitBehavior behavior, bool is_match, bool was_match) {
  switch (behavior) {
    case SplitBehavior::merged_with_previous:
    case SplitBehavior::merged_with_next:
      return is_match && !was_match;
    case SplitBehavior::contiguous:
      return is_match == was_match;
    default:
      return false;
  }
}

}  // namespace

PreTokenizer read_pre_tokenizer(ConfigTree const& tree, std::string const& where) {
  PreTokenizer out;
  if (!tree.is_null()) append_rules(tree, where, out);
  return out;
}

std::vector<Span> fold_pieces(std::vector<Span> const& pieces, std::vector<bool> const& is_match,
                              SplitBehavior behavior) {
  std::vector<Span> out;
  bool const backwards = behavior == SplitBehavior::merged_with_next;
  bool was_match = false;
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    std::size_t const at = backwards ? pieces.size() - 1 - k : k;
    bool const match = is_match[at];
    if (behavior == SplitBehavior::removed && match) continue;
    if (!out.empty() && joins(behavior, match, was_match)) {
      out.back() = {std::min(out.back().begin, pieces[at].begin),
                    std::max(out.back().end, pieces[at].end)};
    } else {
      out.push_back(pieces[at]);
    }
    was_match = match;
  }
  if (backwards) std::ranges::reverse(out);
  return out;
}

}  // namespace tessera::data::detail
