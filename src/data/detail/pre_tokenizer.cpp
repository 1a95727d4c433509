#include "detail/pre_tokenizer.hpp"

#include <algorithm>

#include "detail/regex.hpp"
#include "tessera/core/error.hpp"

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

void append_rules(ConfigTree const& tree, std::string const& where, PreTokenizer& out) {
  TESSERA_VALIDATE(out.rules.size() < 64, ConfigError, where,
                   ": more than 64 steps in a pre_tokenizer");  // each is a level of recursion
  TESSERA_VALIDATE(!out.byte_level, ConfigError, where,
                   ": nothing may follow ByteLevel in a pre_tokenizer");
  std::string const type = tree.get_string("type", "");
  if (type == "Sequence") {
    auto const& steps = tree.at("pretokenizers").as_array();
    for (std::size_t i = 0; i < steps.size(); ++i)
      append_rules(steps[i], concat(where, ".pretokenizers[", i, "]"), out);
  } else if (type == "Split") {
    out.rules.push_back(read_split(tree, where));
  } else if (type == "Digits") {
    out.rules.push_back({tree.get_bool("individual_digits", false) ? "\\p{N}" : "\\p{N}+"});
  } else if (type == "Metaspace") {
    out.rules.push_back(read_metaspace(tree, where));
  } else if (type == "ByteLevel") {
    out.byte_level = true;
    out.rules.push_back({tree.get_bool("use_regex", true) ? gpt2_words : ""});
    if (tree.get_bool("add_prefix_space", true)) out.rules.back().prefix = Prefix::always;
  } else {
    throw ConfigError(concat(where, " has type '", type,
                             "'; Tessera reads Metaspace, Split, Digits, ByteLevel as the last "
                             "step, and a Sequence of them"));
  }
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
