#include "tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/normal_form_limits.hpp"
#include "tokenizer/regex.hpp"
#include "tokenizer/unicode_ranges.hpp"

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

/// Returns the normalization form by Hugging Face's tables, which know fewer characters.
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

std::size_t count_characters(std::string_view text) {
  std::size_t out = 0;
  for (std::size_t at = 0; at < text.size(); ++out) next_code_point(text, at);
  return out;
}
/// Bytes of the first @p count characters.
std::size_t size_of_first(std::string_view text, std::size_t count) {
  std::size_t at = 0;
  while (count-- > 0 && at < text.size()) next_code_point(text, at);
  return at;
}

struct Decomposed {
  char32_t code;
  bool begins;  ///< the first of an input character
};
/// Decomposes a text without ordering its combining marks.
std::vector<Decomposed> decompose(std::string_view text, int form) {
  std::vector<Decomposed> out;
  auto const options =
      static_cast<utf8proc_option_t>(form & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE;
  for (std::size_t at = 0; at < text.size();) {
    char32_t const code = next_code_point(text, at);
    std::array<utf8proc_int32_t, 32> codes{};
    utf8proc_ssize_t count = 0;
    if (!is_inert_in_normal_forms(code))
      count =
          utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), codes.data(), codes.size(),
                                  static_cast<utf8proc_option_t>(options), nullptr);
    if (count <= 0 || count > static_cast<utf8proc_ssize_t>(codes.size())) {
      out.push_back({code, true});
      continue;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      out.push_back({static_cast<char32_t>(codes[i]), i == 0});
  }
  return out;
}

int combining_class(char32_t code) {
  if (is_inert_in_normal_forms(code)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

/// Hugging Face aligns a normal form by counting: the n-th character that is the first of its
/// decomposition is of the n-th input character, also where combining marks have changed places.
std::size_t start_of_form(std::string const& text, std::size_t start, int form) {
  constexpr std::size_t longest = 256;  // bytes of marks that may come before others
  std::size_t end = start;
  for (std::size_t next = start; next < text.size() && next < start + longest; end = next) {
    next_code_point(text, next);
    auto const parts = decompose(std::string_view(text).substr(end, next - end), form);
    if (combining_class(parts.front().code) == 0) break;
  }
  auto parts = decompose(std::string_view(text).substr(0, end), form);
  auto const is_starter = [](Decomposed const& part) { return combining_class(part.code) == 0; };
  for (auto run = parts.begin(); run != parts.end();) {
    if (is_starter(*run)) {
      ++run;
      continue;
    }
    auto const run_end = std::find_if(run, parts.end(), is_starter);
    std::stable_sort(run, run_end, [](auto const& a, auto const& b) {
      return combining_class(a.code) < combining_class(b.code);
    });
    run = run_end;
  }
  std::string kept;
  std::size_t const inputs = count_characters(std::string_view(text).substr(0, start));
  std::size_t begun = 0;
  for (auto const& part : parts) {
    begun += part.begins ? 1 : 0;
    if (begun > inputs) break;
    append_code_point(part.code, kept);
  }
  return count_characters(canonical(kept, form));
}

std::string replaced(std::string const& text, Regex const& pattern, std::string const& with) {
  std::string out;
  std::size_t done = 0;
  for (Regex::Match match; done < text.size() && pattern.search(text, done, match);
       done = match.end)
    out.append(text, done, match.begin - done).append(with);
  return out.append(text, done);
}

/// A replacement comes from the last character that it replaces, as in Hugging Face's alignments.
/// A replacement is aligned with the last character that it replaces.
std::size_t start_of_replaced(std::string const& text, std::size_t start, Regex const& pattern,
                              std::string_view with) {
  std::size_t out = 0, done = 0;
  for (Regex::Match match; done < start && pattern.search(text, done, match) && match.begin < start;
       done = match.end) {
    out += count_characters(std::string_view(text).substr(done, match.begin - done));
    if (match.end <= start) out += count_characters(with);
  }
  return done < start ? out + count_characters(std::string_view(text).substr(done, start - done))
                      : out;
}

/// The bytes [begin, end) that Strip leaves.
std::pair<std::size_t, std::size_t> inside(std::string const& text, bool left, bool right) {
  static Regex const leading(R"(^\s+)", "Strip"), trailing(R"(\s+$)", "Strip");
  std::size_t begin = 0, end = text.size();
  Regex::Match match;
  if (left && leading.search(text, 0, match) && match.begin == 0) begin = match.end;
  if (right && begin < end)
    for (std::size_t at = begin; trailing.search(text, at, match); at = match.end)
      if (match.end == text.size()) end = match.begin;
  return {begin, end};
}

std::string pattern_of(ConfigTree const& tree, std::string const& where) {
  auto const& pattern = tree.at("pattern");
  if (auto const* regex = pattern.find("Regex")) return regex->as_string();
  auto const* literal = pattern.find("String");
  TESSERA_VALIDATE(literal && !literal->as_string().empty(), DataError, where,
                   ".pattern has neither a Regex nor a String");
  return Regex::quote(literal->as_string());
}

using Change = std::function<std::string(std::string)>;

/// 0: no normal form.
int form_of(std::string const& type) {
  if (type == "NFC") return UTF8PROC_COMPOSE;
  if (type == "NFD") return UTF8PROC_DECOMPOSE;
  if (type == "NFKC") return UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
  return type == "NFKD" ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : 0;
}

/// The options of BertNormalizer in the order in which it applies them.
Change bert_change(ConfigTree const& tree) {
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

Change simple_change(std::string const& type) {
  if (type == "StripAccents") return without_combining_marks;
  if (type == "Lowercase") return lowercased;
  if (type == "Nmt") return nmt_cleaned;
  return nullptr;
}

}  // namespace

Normalizer::Step Normalizer::replace_step(ConfigTree const& tree, std::string const& where) {
  auto const pattern = std::make_shared<Regex const>(pattern_of(tree, where), where);
  std::string const content = tree.at("content").as_string();
  return {[=](std::string const& text) { return replaced(text, *pattern, content); },
          [=](std::string const& text, std::size_t start) {
            return start_of_replaced(text, start, *pattern, content);
          }};
}

Normalizer::Step Normalizer::strip_step(ConfigTree const& tree) {
  bool const left = tree.get_bool("strip_left", true), right = tree.get_bool("strip_right", true);
  return {[=](std::string const& text) {
            auto const [begin, end] = inside(text, left, right);
            return text.substr(begin, end - begin);
          },
          [=](std::string const& text, std::size_t start) {
            auto const [begin, end] = inside(text, left, right);
            return count_characters(std::string_view(text).substr(
                begin, std::max(begin, std::min(start, end)) - begin));
          }};
}

Normalizer::Step Normalizer::make_step(ConfigTree const& tree, std::string const& type,
                                       std::string const& where) {
  if (int const form = form_of(type))
    return {[form](std::string const& text) { return canonical(text, form); },
            [form](std::string const& text, std::size_t start) {
              return start_of_form(text, start, form);
            }};
  if (Change change = simple_change(type)) return {change};
  if (type == "Replace") return replace_step(tree, where);
  if (type == "Strip") return strip_step(tree);
  if (type == "BertNormalizer") return {bert_change(tree)};
  if (type == "Prepend")
    return {[prefix = tree.at("prepend").as_string()](std::string text) {
      return text.empty() ? text : prefix + text;
    }};
  TESSERA_VALIDATE(type == "Precompiled", ConfigError, where, " has type '", type,
                   "'; Tessera reads NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, StripAccents, "
                   "Lowercase, Nmt, Precompiled, BertNormalizer and a Sequence of them. Normalize "
                   "the text beforehand and set it to null");
  auto const map = std::make_shared<Charsmap const>(tree.at("precompiled_charsmap").as_string(),
                                                    where + ".precompiled_charsmap");
  return {[map](std::string const& text) { return map->apply(text); },
          [map](std::string const& text, std::size_t start) {
            // Hugging Face aligns what follows removed characters with the first of them
            return std::max<std::size_t>(1, count_characters(map->apply(text.substr(0, start))));
          }};
}

Normalizer::Normalizer(ConfigTree const& tree, std::string const& where) {
  if (!tree.is_null()) append(tree, where, 0);
}

void Normalizer::append(ConfigTree const& tree, std::string const& where, int depth) {
  std::string const type = tree.get_string("type", "");
  TESSERA_VALIDATE(steps_.size() < max_steps && depth < max_depth, ConfigError, where,
                   ": more than ", max_steps, " steps, or nested more than ", max_depth, " deep");
  if (type != "Sequence") {
    steps_.push_back(make_step(tree, type, where));
    return;
  }
  auto const& steps = tree.at("normalizers").as_array();
  for (std::size_t i = 0; i < steps.size(); ++i)
    append(steps[i], concat(where, ".normalizers[", i, "]"), depth + 1);
}

Normalizer::Result Normalizer::normalize(std::string_view text) const {
  Result out{std::string(text), size_of_first(text, 1)};
  for (auto const& step : steps_) {
    if (out.start == 0) {
      out.text = step.change(std::move(out.text));
      continue;
    }
    std::size_t const characters =
        step.left ? step.left(out.text, out.start)
                  : count_characters(step.change(out.text.substr(0, out.start)));
    out.text = step.change(std::move(out.text));
    out.start = size_of_first(out.text, characters);
  }
  return out;
}

namespace {

constexpr CodePoints white_space[] = {
    {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
constexpr CodePoints removed_by_nmt[] = {{0x1, 0x8},   {0xB, 0xB},   {0xE, 0x1F},
                                         {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
constexpr CodePoints spaces_of_nmt[] = {{0x9, 0xA},       {0xC, 0xD},       {0x1680, 0x1680},
                                        {0x200B, 0x200F}, {0x2028, 0x2029}, {0x2581, 0x2581},
                                        {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};
constexpr CodePoints ideographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                     {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                     {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

/// visit(code point, its bytes, out) appends what the character becomes.
template <class Visit>
std::string changed(std::string_view text, Visit const& visit) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const begin = at;
    char32_t const code = next_code_point(text, at);
    visit(code, text.substr(begin, at - begin), out);
  }
  return out;
}

std::string without(std::string_view text, std::span<CodePoints const> ranges) {
  return changed(text, [&](char32_t code, std::string_view bytes, std::string& out) {
    if (!is_one_of(ranges, code)) out += bytes;
  });
}

}  // namespace

bool is_white_space(char32_t code) { return is_one_of(white_space, code); }

std::string nmt_cleaned(std::string_view text) {
  return changed(text, [](char32_t code, std::string_view bytes, std::string& out) {
    if (is_one_of(removed_by_nmt, code)) return;
    out += is_one_of(spaces_of_nmt, code) ? std::string_view(" ") : bytes;
  });
}

std::string lowercased(std::string_view text) {
  return changed(text, [](char32_t code, std::string_view bytes, std::string& out) {
    if (code < 0x80) {
      out.push_back(static_cast<char>(code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code));
      return;
    }
    if (code == 0x130) {  // the only one whose lower case has two
      out += "i\u0307";
      return;
    }
    auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
    for (auto const& range : new_capitals)
      if (code >= range.first && code <= range.last) lower = range.lower + (code - range.first);
    if (lower == code)
      out += bytes;
    else
      append_code_point(lower, out);
  });
}

std::string without_combining_marks(std::string_view text) {
  return without(text, combining_marks);
}

std::string without_nonspacing_marks(std::string_view text) {
  return without(text, nonspacing_marks);
}

std::string bert_cleaned(std::string_view text) {
  return changed(text, [](char32_t code, std::string_view bytes, std::string& out) {
    if (code == 0 || code == 0xFFFD || is_one_of(removed_by_bert, code)) return;
    out += is_white_space(code) ? std::string_view(" ") : bytes;
  });
}

std::string with_spaced_ideographs(std::string_view text) {
  return changed(text, [](char32_t code, std::string_view bytes, std::string& out) {
    if (!is_one_of(ideographs, code)) {
      out += bytes;
      return;
    }
    out.append(" ").append(bytes).append(" ");
  });
}

}  // namespace tessera::data::detail
