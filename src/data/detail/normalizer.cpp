#include "detail/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "detail/normal_form_limits.hpp"
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
std::string canonical(std::string const& text, utf8proc_option_t options) {
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

}  // namespace

Normalizer::Normalizer(ConfigTree const& tree, std::string const& where) {
  if (!tree.is_null()) append(tree, where, 0);
}

void Normalizer::append(ConfigTree const& tree, std::string const& where, int depth) {
  std::string const type = tree.get_string("type", "");
  TESSERA_VALIDATE(steps_.size() < max_steps && depth < max_depth, ConfigError, where,
                   ": more than ", max_steps, " steps, or nested more than ", max_depth, " deep");
  if (type == "Sequence") {
    auto const& steps = tree.at("normalizers").as_array();
    for (std::size_t i = 0; i < steps.size(); ++i)
      append(steps[i], concat(where, ".normalizers[", i, "]"), depth + 1);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps_.push_back({type == "NFC"    ? Kind::nfc
                      : type == "NFD"  ? Kind::nfd
                      : type == "NFKC" ? Kind::nfkc
                                       : Kind::nfkd,
                      {},
                      {}});
  } else if (type == "Prepend") {
    steps_.push_back({Kind::prepend, {}, tree.at("prepend").as_string()});
  } else if (type == "Replace") {
    steps_.push_back(
        {Kind::replace, Regex(pattern_of(tree, where), where), tree.at("content").as_string()});
  } else if (type == "Strip") {
    steps_.push_back({Kind::strip,
                      {},
                      {},
                      tree.get_bool("strip_left", true),
                      tree.get_bool("strip_right", true)});
  } else {
    throw ConfigError(concat(where, " has type '", type,
                             "'; Tessera reads NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip and a "
                             "Sequence of them. Normalize the text beforehand and set it to null"));
  }
}

std::string Normalizer::apply(Step const& step, std::string text) {
  switch (step.kind) {
    case Kind::nfc:
      return canonical(text, UTF8PROC_COMPOSE);
    case Kind::nfd:
      return canonical(text, UTF8PROC_DECOMPOSE);
    case Kind::nfkc:
      return canonical(text, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_COMPAT));
    case Kind::nfkd:
      return canonical(text, static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT));
    case Kind::prepend:
      return text.empty() ? text : step.text + text;
    case Kind::replace:
      return replaced(text, *step.pattern, step.text);
    case Kind::strip:
      break;
  }
  return stripped(text, step.left, step.right);
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (auto const& step : steps_) out = apply(step, std::move(out));
  return out;
}

}  // namespace tessera::data::detail
