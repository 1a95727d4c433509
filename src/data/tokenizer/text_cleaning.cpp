#include "tokenizer/text_cleaning.hpp"

#include <utf8proc.h>

#include "tessera/core/text.hpp"
#include "tokenizer/unicode_ranges.hpp"

namespace tessera::data::detail {
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
