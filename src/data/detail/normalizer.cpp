#include "detail/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "detail/charsmap.hpp"
#include "detail/normal_form_limits.hpp"
#include "detail/regex.hpp"
#include "detail/text_cleaning.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/utf8.hpp"

namespace tessera::data::detail {
namespace {

constexpr int max_depth = 8;
constexpr std::size_t max_steps = 64;

/// A normal form of @p text by utf8proc's tables.
std::string mapped(std::string_view text, utf8proc_option_t options) {
  utf8proc_uint8_t* result = nullptr;
  auto const bytes = utf8proc_map(reinterpret_cast<utf8proc_uint8_t const*>(text.data()),
                                  static_cast<utf8proc_ssize_t>(text.size()), &result,
                                  static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> const owner(result, &std::free);
  TESSERA_VALIDATE(bytes >= 0, DataError, "a text of ", text.size(),
                   " bytes cannot be normalized: ", utf8proc_errmsg(bytes));
  return {reinterpret_cast<char const*>(result), static_cast<std::size_t>(bytes)};
}

/// The same by Hugging Face's tables, which know fewer characters.
std::string canonical(std::string const& text, int form) {
  auto const options = static_cast<utf8proc_option_t>(form);
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return text;  // ASCII is in every form
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const begin = at;
    if (!is_inert_in_normal_forms(next_code_point(text, at))) continue;
    out += mapped(std::string_view(text).substr(done, begin - done), options);
    out.append(text, begin, at - begin);
    done = at;
  }
  return out + mapped(std::string_view(text).substr(done), options);
}

std::string replaced(std::string const& text, Regex const& pattern, std::string const& with) {
  std::string out;
  std::size_t done = 0;
  for (Regex::Match match; done < text.size() && pattern.search(text, done, match);
       done = match.end)
    out.append(text, done, match.begin - done).append(with);
  return out.append(text, done);
}

std::string stripped(std::string const& text, bool left, bool right) {
  static Regex const leading(R"(^\s+)", "Strip"), trailing(R"(\s+$)", "Strip");
  std::size_t begin = 0, end = text.size();
  Regex::Match match;
  if (left && leading.search(text, 0, match) && match.begin == 0) begin = match.end;
  if (right && begin < end)
    for (std::size_t at = begin; trailing.search(text, at, match); at = match.end)
      if (match.end == text.size()) end = match.begin;
  return text.substr(begin, end - begin);
}

std::string pattern_of(ConfigTree const& tree, std::string const& where) {
  auto const& pattern = tree.at("pattern");
  if (auto const* regex = pattern.find("Regex")) return regex->as_string();
  auto const* literal = pattern.find("String");
  TESSERA_VALIDATE(literal && !literal->as_string().empty(), DataError, where,
                   ".pattern has neither a Regex nor a String");
  return Regex::quote(literal->as_string());
}

using Step = std::function<std::string(std::string)>;

Step normal_form(int options) {
  return [options](std::string text) { return canonical(text, options); };
}

Step replace_step(ConfigTree const& tree, std::string const& where) {
  auto const pattern = std::make_shared<Regex const>(pattern_of(tree, where), where);
  return [pattern, content = tree.at("content").as_string()](std::string text) {
    return replaced(text, *pattern, content);
  };
}

/// The options of BertNormalizer in the order in which it applies them.
Step bert_step(ConfigTree const& tree) {
  bool const clean = tree.get_bool("clean_text", true);
  bool const spaced = tree.get_bool("handle_chinese_chars", true);
  bool const lower = tree.get_bool("lowercase", true);
  auto const* strip = tree.find("strip_accents");
  bool const strips = strip && !strip->is_null() ? strip->as_bool() : lower;
  return [=](std::string text) {
    if (clean) text = bert_cleaned(text);
    if (spaced) text = with_spaced_ideographs(text);
    if (strips) text = without_nonspacing_marks(canonical(text, UTF8PROC_DECOMPOSE));
    return lower ? lowercased(text) : text;
  };
}

Step simple_step(std::string const& type) {
  if (type == "NFC") return normal_form(UTF8PROC_COMPOSE);
  if (type == "NFD") return normal_form(UTF8PROC_DECOMPOSE);
  if (type == "NFKC") return normal_form(UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  if (type == "NFKD") return normal_form(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  if (type == "StripAccents") return without_combining_marks;
  if (type == "Lowercase") return lowercased;
  if (type == "Nmt") return nmt_cleaned;
  return nullptr;
}

Step make_step(ConfigTree const& tree, std::string const& type, std::string const& where) {
  if (Step step = simple_step(type)) return step;
  if (type == "Replace") return replace_step(tree, where);
  if (type == "BertNormalizer") return bert_step(tree);
  if (type == "Prepend")
    return [prefix = tree.at("prepend").as_string()](std::string text) {
      return text.empty() ? text : prefix + text;
    };
  if (type == "Strip")
    return [left = tree.get_bool("strip_left", true), right = tree.get_bool("strip_right", true)](
               std::string const& text) { return stripped(text, left, right); };
  TESSERA_VALIDATE(type == "Precompiled", ConfigError, where, " has type '", type,
                   "'; Tessera reads NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, StripAccents, "
                   "Lowercase, Nmt, Precompiled, BertNormalizer and a Sequence of them. Normalize "
                   "the text beforehand and set it to null");
  auto const map = std::make_shared<Charsmap const>(tree.at("precompiled_charsmap").as_string(),
                                                    where + ".precompiled_charsmap");
  return [map](std::string const& text) { return map->apply(text); };
}

}  // namespace

Normalizer::Normalizer(ConfigTree const& tree, std::string const& where) {
  if (!tree.is_null()) append(tree, where, 0);
}

void Normalizer::append(ConfigTree const& tree, std::string const& where, int depth) {
  std::string const type = tree.get_string("type", "");
  TESSERA_VALIDATE(steps_.size() < max_steps && depth < max_depth, ConfigError, where,
                   ": more than ", max_steps, " steps, or nested more than ", max_depth, " deep");
  if (type != "Sequence") {
    bool const removes = type == "Strip" || type == "Nmt" || type == "StripAccents" ||
                         type == "Replace" || type == "BertNormalizer";
    steps_.push_back({make_step(tree, type, where), removes});
    return;
  }
  auto const& steps = tree.at("normalizers").as_array();
  for (std::size_t i = 0; i < steps.size(); ++i)
    append(steps[i], concat(where, ".normalizers[", i, "]"), depth + 1);
}

Normalizer::Result Normalizer::normalize(std::string_view text) const {
  Result out{std::string(text)};
  for (auto const& step : steps_) {
    if (step.removes && out.keeps_start && !out.text.empty()) {
      std::size_t end = 0;
      next_code_point(out.text, end);
      out.keeps_start = !step.change(out.text.substr(0, end)).empty();
    }
    out.text = step.change(std::move(out.text));
  }
  return out;
}

}  // namespace tessera::data::detail
