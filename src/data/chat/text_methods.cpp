#include "chat/builtins.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

template <class Map>
std::string mapped(std::string_view text, Map map) {
  std::string out;
  for (std::size_t i = 0; i < text.size();)
    append_code_point(
        static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(next_code_point(text, i)))), out);
  return out;
}

/// Where the character before @p end begins.
std::size_t previous(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (text[end] & 0xc0) == 0x80);
  return end;
}

Value list_of(Call const& call, std::vector<std::string> const& parts) {
  std::vector<Value> items;
  for (auto const& part : parts) items.push_back(call.make(part));
  return make_list(call.budget(), std::move(items));
}

/// Parts between white space, at most @p count splits from the left.
std::vector<std::string> words(std::string_view text, std::int64_t count) {
  std::vector<std::string> out;
  std::string_view rest = text;
  while (true) {
    std::string const left = stripped(rest, nullptr, true, false);
    rest.remove_prefix(rest.size() - left.size());
    if (rest.empty()) return out;
    if (static_cast<std::int64_t>(out.size()) == count) {
      out.push_back(stripped(rest, nullptr, false, true));
      return out;
    }
    std::size_t end = 0, next = 0;
    while (end < rest.size() && !is_space(next_code_point(rest, next))) end = next;
    out.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end);
  }
}

Value split(Call const& call) {
  std::string_view rest = call.self.text()->bytes;
  std::int64_t const given = call.integer(1, -1);
  std::int64_t const count = given < 0 ? INT64_MAX : given;
  if (!call.at(0) || call.at(0)->is_none()) {
    call.budget().step(rest.size() * 16);
    return list_of(call, words(rest, count));
  }
  std::string const& separator = call.text(0, "");
  if (separator.empty()) fail("split: the separator is empty");
  std::vector<std::string> parts;
  for (std::size_t found = rest.find(separator);
       found != std::string_view::npos && static_cast<std::int64_t>(parts.size()) < count;
       found = rest.find(separator)) {
    call.budget().step();
    parts.emplace_back(rest.substr(0, found));
    rest.remove_prefix(found + separator.size());
  }
  parts.emplace_back(rest);
  return list_of(call, parts);
}

Value rsplit(Call const& call) {
  std::string_view rest = call.self.text()->bytes;
  std::int64_t const count = call.integer(1, -1);
  std::string const& separator = call.text(0, "");
  if (separator.empty()) fail("rsplit: a separator that is not empty is expected");
  std::vector<std::string> parts;
  for (std::size_t found = rest.rfind(separator);
       found != std::string_view::npos &&
       (count < 0 || static_cast<std::int64_t>(parts.size()) < count);
       found = rest.rfind(separator)) {
    call.budget().step();
    parts.emplace_back(rest.substr(found + separator.size()));
    rest = rest.substr(0, found);
  }
  parts.emplace_back(rest);
  std::ranges::reverse(parts);
  return list_of(call, parts);
}

Value partition(Call const& call) {
  std::string const &text = call.self.text()->bytes, &separator = call.text(0, "");
  if (separator.empty()) fail("partition: the separator is empty");
  std::size_t const found = text.find(separator);
  bool const has = found != std::string::npos;
  std::vector<Value> parts{call.make(text.substr(0, found)), call.make(has ? separator : ""),
                           call.make(has ? text.substr(found + separator.size()) : "")};
  return make_list(call.budget(), std::move(parts), List::Shape::tuple);
}

enum class End { begin, end };
Value has_affix(Call const& call, End end) {
  std::string_view text = call.self.text()->bytes;
  if (std::int64_t const skipped = call.integer(1, 0); skipped != 0) {
    if (skipped < 0 || end == End::end)
      fail("the begin of a search is supported in startswith only");
    auto const parts = characters(text);
    if (static_cast<std::size_t>(skipped) > parts.size()) return Value(false);
    for (std::size_t i = 0; i < static_cast<std::size_t>(skipped); ++i)
      text.remove_prefix(parts[i].size());
  }
  auto const has = [&](Value const& affix) {
    auto const* given = affix.text();
    if (!given) fail(concat("startswith and endswith take text, not a ", type_name(affix)));
    return end == End::begin ? text.starts_with(given->bytes) : text.ends_with(given->bytes);
  };
  Value const& affix = *call.at(0);
  auto const* list = affix.list();
  if (list && list->shape == List::Shape::tuple)
    return Value(std::ranges::any_of(list->items, has));
  return Value(has(affix));
}

/// The index of the first or the last place, -1 without one.
template <std::size_t (std::string::*search)(std::string const&, std::size_t) const noexcept>
Value find(Call const& call) {
  std::string const& text = call.self.text()->bytes;
  bool const last = search == static_cast<decltype(search)>(&std::string::rfind);
  std::size_t const found = (text.*search)(call.text(0, ""), last ? std::string::npos : 0);
  if (found == std::string::npos) return Value(std::int64_t{-1});
  return Value(count_characters(std::string_view(text).substr(0, found)));
}

Value index_of(Call const& call) {
  Value found = find<&std::string::find>(call);
  if (found.integer() < 0) fail("index: the text is not found");
  return found;
}

Value count(Call const& call) {
  std::string const &text = call.self.text()->bytes, &part = call.text(0, "");
  if (part.empty()) return Value(count_characters(text) + 1);
  std::int64_t out = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size()))
    ++out;
  return Value(out);
}

Value join_items(Call const& call) {
  std::string out;
  bool first = true;
  for (auto const& item : elements(*call.at(0), call.budget())) {
    if (!item.text()) fail(concat("join: a ", type_name(item), " is not text"));
    if (!std::exchange(first, false)) out += call.self.text()->bytes;
    out += item.text()->bytes;
    call.budget().step(item.text()->bytes.size());
    Charge const bound(call.budget(), out.size());
  }
  return call.make(std::move(out));
}

/// Letters that follow no letter in upper case, others in lower case.
std::string titled(std::string_view text) {
  std::string out;
  bool inside = false;
  for (auto const character : characters(text)) {
    std::size_t at = 0;
    auto const code = static_cast<utf8proc_int32_t>(next_code_point(character, at));
    out += inside ? in_lower_case(character) : in_upper_case(character);
    auto const category = utf8proc_category(code);
    inside = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
             category == UTF8PROC_CATEGORY_LT;
  }
  return out;
}

/// Every character is in a set, and there is one.
template <class Test>
Value all_are(Call const& call, Test test) {
  std::string const& text = call.self.text()->bytes;
  for (std::size_t i = 0; i < text.size();)
    if (!test(next_code_point(text, i))) return Value(false);
  return Value(!text.empty());
}
bool is_decimal(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_ND;
}
bool is_alphabetic(char32_t code) {
  auto const category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

Value affix_removed(Call const& call, End end) {
  std::string_view text = call.self.text()->bytes;
  std::string const& affix = call.text(0, "");
  if (end == End::begin && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (end == End::end && text.ends_with(affix)) text.remove_suffix(affix.size());
  return call.make(std::string(text));
}

#define STRIP(left, right) \
  [](Call const& c) { return c.make(stripped(c.self.text()->bytes, c.at(0), left, right)); }

constexpr Builtin all[] = {
    {"strip", "chars", STRIP(true, true)},
    {"lstrip", "chars", STRIP(true, false)},
    {"rstrip", "chars", STRIP(false, true)},
    {"split", "sep,maxsplit", split},
    {"rsplit", "sep,maxsplit", rsplit},
    {"splitlines", "", [](Call const& c) { return list_of(c, lines_of(c.self.text()->bytes)); }},
    {"partition", "!sep", partition},
    {"startswith", "!prefix,start", [](Call const& c) { return has_affix(c, End::begin); }},
    {"endswith", "!suffix,start", [](Call const& c) { return has_affix(c, End::end); }},
    {"removeprefix", "!prefix", [](Call const& c) { return affix_removed(c, End::begin); }},
    {"removesuffix", "!suffix", [](Call const& c) { return affix_removed(c, End::end); }},
    {"replace", "!old,new,count",
     [](Call const& c) {
       return c.make(replaced(c.self.text()->bytes, c.text(0, ""), c.text(1, ""), c.integer(2, -1),
                              c.budget()));
     }},
    {"upper", "", [](Call const& c) { return c.make(in_upper_case(c.self.text()->bytes)); }},
    {"lower", "", [](Call const& c) { return c.make(in_lower_case(c.self.text()->bytes)); }},
    {"title", "", [](Call const& c) { return c.make(titled(c.self.text()->bytes)); }},
    {"capitalize", "", [](Call const& c) { return c.make(capitalized(c.self.text()->bytes)); }},
    {"find", "!sub", find<&std::string::find>},
    {"rfind", "!sub", find<&std::string::rfind>},
    {"index", "!sub", index_of},
    {"count", "!sub", count},
    {"join", "!items", join_items},
    {"isdigit", "", [](Call const& c) { return all_are(c, is_decimal); }},
    {"isdecimal", "", [](Call const& c) { return all_are(c, is_decimal); }},
    {"isspace", "", [](Call const& c) { return all_are(c, is_space); }},
    {"isalpha", "", [](Call const& c) { return all_are(c, is_alphabetic); }}};
#undef STRIP

}  // namespace

std::string stripped(std::string_view text, Value const* set, bool left, bool right) {
  std::vector<std::string_view> members;
  bool const spaces = !set || set->is_none();
  if (!spaces && !set->text()) fail(concat("strip takes text, not a ", type_name(*set)));
  if (!spaces) members = characters(set->text()->bytes);
  auto const removed = [&](std::string_view character) {
    std::size_t at = 0;
    return spaces ? is_space(next_code_point(character, at))
                  : std::ranges::find(members, character) != members.end();
  };
  std::size_t begin = 0, end = text.size();
  for (std::size_t next = 0; left && begin < end; begin = next) {
    next_code_point(text, next);
    if (!removed(text.substr(begin, next - begin))) break;
  }
  while (right && end > begin) {
    std::size_t const last = previous(text, end);
    if (!removed(text.substr(last, end - last))) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

std::string replaced(std::string const& text, std::string const& from, std::string const& to,
                     std::int64_t count, Budget& budget) {
  std::string out;
  std::size_t done = 0;
  auto const bound = [&] { Charge const charge(budget, out.size() + to.size()); };
  for (std::int64_t i = 0; count < 0 || i < count; ++i) {
    std::size_t found = done;
    if (!from.empty()) {
      found = text.find(from, done);
    } else if (i > 0) {  // between characters
      if (done >= text.size()) break;
      next_code_point(text, found);
    }
    if (found == std::string::npos) break;
    budget.step(to.size());
    bound();
    out.append(text, done, found - done).append(to);
    done = found + from.size();
  }
  return out.append(text, done);
}

std::string in_upper_case(std::string_view text) {
  std::string const out = mapped(text, utf8proc_toupper);
  std::string full;  // one character has two capital letters that occur in texts
  for (auto const character : characters(out))
    full += character == "\u00df" || character == "\u1e9e" ? "SS" : std::string(character);
  return text.find("\u1e9e") == std::string_view::npos ? full : out;
}
std::string in_lower_case(std::string_view text) { return mapped(text, utf8proc_tolower); }
std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  std::size_t end = 0;
  next_code_point(text, end);
  std::string first = mapped(text.substr(0, end), utf8proc_totitle);
  return (first == "\u00df" || first == "\u1e9e" ? "Ss" : first) + in_lower_case(text.substr(end));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t const end = i;
    char32_t const code = next_code_point(text, i);
    bool const breaks = (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) ||
                        code == 0x85 || code == 0x2028 || code == 0x2029;
    if (!breaks) continue;
    if (code == '\r' && i < text.size() && text[i] == '\n') ++i;
    out.emplace_back(text.substr(begin, end - begin));
    begin = i;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

std::span<Builtin const> text_methods() { return all; }

}  // namespace tessera::data::detail
