#include "chat/builtins.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

std::string text_of(Call const& call) { return to_text(call.self, call.budget()); }
std::vector<Value> items_of(Call const& call) { return elements(call.self, call.budget()); }
Value list_of(Call const& call, std::vector<Value> items, List::Shape shape = List::Shape::list) {
  return make_list(call.budget(), std::move(items), shape);
}

/// The member that a path such as "function.name" or an index names.
Value member_of(Call const& call, Value const& item, Value const& path) {
  if (path.is_integral()) return item_of(item, path, call.budget());
  if (!path.text()) fail(concat("an attribute is named by text, not by a ", type_name(path)));
  Value out = item;
  std::string const& names = path.text()->bytes;
  for (std::size_t begin = 0; begin <= names.size();) {
    std::size_t const end = std::min(names.find('.', begin), names.size());
    std::string const name = names.substr(begin, end - begin);
    std::int64_t index = 0;
    auto const read = std::from_chars(name.data(), name.data() + name.size(), index);
    bool const number = !name.empty() && name[0] != '-' && read.ec == std::errc() &&
                        read.ptr == name.data() + name.size();
    out = item_of(out, number ? Value(index) : call.make(name), call.budget());
    begin = end + 1;
  }
  return out;
}

Value default_value(Call const& call) {
  bool const replaces = call.self.is_undefined() || (call.flag(1) && !truth(call.self));
  if (!replaces) return call.self;
  return call.at(0) ? *call.at(0) : call.make("");
}

Value length_of(Call const& call) {
  std::int64_t const size = length(call.self, call.budget());
  if (size < 0) fail(concat("a ", type_name(call.self), " has no length"));
  return Value(size);
}

Value first(Call const& call) {
  auto const items = items_of(call);
  return items.empty() ? make_undefined(call.budget(), "first: the sequence is empty")
                       : items.front();
}
Value last(Call const& call) {
  if (auto const* list = call.self.list(); list && list->shape == List::Shape::generator)
    fail("last: the input can only be read from its begin; put the filter `list` before it");
  auto const items = items_of(call);
  return items.empty() ? make_undefined(call.budget(), "last: the sequence is empty")
                       : items.back();
}

Value join_all(Call const& call) {
  std::string out;
  std::string const separator = call.at(0) ? to_text(*call.at(0), call.budget()) : "";
  bool begins = true;
  for (auto const& item : items_of(call)) {
    if (!std::exchange(begins, false)) out += separator;
    out += to_text(call.at(1) && !call.at(1)->is_none() ? member_of(call, item, *call.at(1)) : item,
                   call.budget());
    Charge const bound(call.budget(), out.size());
  }
  return call.make(std::move(out));
}

Value pairs_of(Call const& call, Dict const& dict, List::Shape shape) {
  std::vector<Value> out;
  for (auto const& [key, value] : dict.members)
    out.push_back(list_of(call, {key, value}, List::Shape::tuple));
  return list_of(call, std::move(out), shape);
}
Value items(Call const& call) {
  if (call.self.is_undefined()) return list_of(call, {}, List::Shape::generator);
  if (!call.self.dict()) fail(concat("items: a ", type_name(call.self), " is not a mapping"));
  return pairs_of(call, *call.self.dict(), List::Shape::generator);
}

/// Text without case for comparisons.
Value without_case(Call const& call, Value const& value) {
  return value.text() ? call.make(in_lower_case(value.text()->bytes)) : value;
}

/// Sorts by a key of each item.
template <class Key>
std::vector<Value> sorted(Call const& call, std::vector<Value> items, bool reverse,
                          Key const& key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (auto& item : items) keyed.emplace_back(key(item), item);
  std::ranges::stable_sort(keyed, [&](auto const& a, auto const& b) {
    return reverse ? compare(b.first, a.first, call.budget()) < 0
                   : compare(a.first, b.first, call.budget()) < 0;
  });
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
  return items;
}

/// The key of an item by the attribute in parameter @p attribute and the case in @p sensitive.
auto key_of(Call const& call, std::size_t sensitive, std::size_t attribute) {
  return [&call, sensitive, attribute](Value const& item) {
    Value const* path = call.at(attribute);
    Value key = path && !path->is_none() ? member_of(call, item, *path) : item;
    return call.flag(sensitive) ? key : without_case(call, key);
  };
}

Value sort(Call const& call) {
  return list_of(call, sorted(call, items_of(call), call.flag(0), key_of(call, 1, 2)));
}

Value sort_dict(Call const& call) {
  if (!call.self.dict()) fail(concat("dictsort: a ", type_name(call.self), " is not a mapping"));
  std::string const& by = call.text(1, "key");
  if (by != "key" && by != "value") fail("dictsort sorts by \"key\" or \"value\"");
  Value const pairs = pairs_of(call, *call.self.dict(), List::Shape::list);
  return list_of(call, sorted(call, pairs.list()->items, call.flag(2), [&](Value const& pair) {
                   Value const& key = pair.list()->items[by == "key" ? 0 : 1];
                   return call.flag(0) ? key : without_case(call, key);
                 }));
}

enum class Extreme { least, greatest };
Value extreme(Call const& call, Extreme which) {
  auto const items = items_of(call);
  if (items.empty()) return make_undefined(call.budget(), "the sequence is empty");
  auto const key = key_of(call, 0, 1);
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    int const order = compare(key(items[i]), key(items[best]), call.budget());
    if (which == Extreme::least ? order < 0 : order > 0) best = i;
  }
  return items[best];
}

Value unique(Call const& call) {
  auto const key = key_of(call, 0, 1);
  std::vector<Value> out, keys;
  for (auto const& item : items_of(call)) {
    Value each = key(item);
    if (std::ranges::any_of(keys, [&](Value const& k) { return equal(k, each, call.budget()); }))
      continue;
    keys.push_back(std::move(each));
    out.push_back(item);
  }
  return list_of(call, std::move(out), List::Shape::generator);
}

Value reverse(Call const& call) {
  std::vector<Value> items = items_of(call);
  std::ranges::reverse(items);
  if (!call.self.text()) return list_of(call, std::move(items), List::Shape::generator);
  std::string out;
  for (auto const& item : items) out += item.text()->bytes;
  return call.make(std::move(out));
}

Value map(Call const& call) {
  auto const& [positional, keywords] = call.arguments;
  Arguments rest = call.arguments;
  std::vector<Value> out;
  if (positional.empty() && !keywords.empty() && keywords[0].first == "attribute") {
    bool const standard = keywords.size() == 2 && keywords[1].first == "default";
    if (keywords.size() > 1 && !standard) fail("map takes attribute and default, or a filter");
    for (auto const& item : items_of(call)) {
      Value member = member_of(call, item, keywords[0].second);
      out.push_back(standard && member.is_undefined() ? keywords[1].second : std::move(member));
    }
    return list_of(call, std::move(out), List::Shape::generator);
  }
  if (positional.empty() || !positional[0].text()) fail("map needs the name of a filter");
  rest.positional.erase(rest.positional.begin());
  for (auto const& item : items_of(call))
    out.push_back(apply_filter(call.interpreter, positional[0].text()->bytes, item, rest));
  return list_of(call, std::move(out), List::Shape::generator);
}

enum class Of { item, attribute };
Value chosen(Call const& call, bool keeps, Of of) {
  auto const& given = call.arguments.positional;
  std::size_t const test = of == Of::attribute ? 1 : 0;
  if (given.size() < test) fail("selectattr and rejectattr need the name of an attribute");
  if (given.size() > test && !given[test].text()) fail("the name of a test is not text");
  Arguments rest{{}, call.arguments.keywords};
  for (std::size_t i = test + 1; i < given.size(); ++i) rest.positional.push_back(given[i]);
  std::vector<Value> out;
  for (auto const& item : items_of(call)) {
    Value const subject = of == Of::attribute ? member_of(call, item, given[0]) : item;
    bool const holds = given.size() > test
                           ? apply_test(call.interpreter, given[test].text()->bytes, subject, rest)
                           : truth(subject);
    if (holds == keeps) out.push_back(item);
  }
  return list_of(call, std::move(out), List::Shape::generator);
}

/// A number as Python's int() and float() read it; false for anything else.
bool read_number(std::string text, double& real, std::int64_t* integer) {
  text = stripped(text, nullptr, true, true);
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  char const *begin = digits.data(), *end = begin + digits.size();
  if (integer) {
    auto const read = std::from_chars(begin, end, *integer);
    return read.ec == std::errc() && read.ptr == end;
  }
  auto const read = std::from_chars(begin, end, real);
  return read.ec == std::errc() && read.ptr == end;
}

Value to_integer(Call const& call) {
  std::int64_t integer = 0;
  double real = 0;
  if (call.self.is_integral()) return Value(call.self.integer());
  if (auto const* text = call.self.text()) {
    if (read_number(text->bytes, real, &integer)) return Value(integer);
    if (!read_number(text->bytes, real, nullptr)) real = NAN;
  } else {
    real = call.self.is<double>() ? call.self.number() : NAN;
  }
  if (std::isfinite(real) && std::abs(real) < 9e18) return Value(static_cast<std::int64_t>(real));
  return call.at(0) ? *call.at(0) : Value(std::int64_t{0});
}

Value to_real(Call const& call) {
  double real = 0;
  if (call.self.is_number()) return Value(call.self.number());
  if (call.self.text() && read_number(call.self.text()->bytes, real, nullptr)) return Value(real);
  return call.at(0) ? *call.at(0) : Value(0.0);
}

Value absolute(Call const& call) {
  if (!call.self.is_number()) fail(concat("abs: a ", type_name(call.self), " is not a number"));
  return call.self.number() < 0 ? negated(call.self) : call.self;
}

Value sum(Call const& call) {
  Value out = call.at(1) ? *call.at(1) : Value(std::int64_t{0});
  for (auto const& item : items_of(call))
    out = arithmetic(
        "+", out, call.at(0) && !call.at(0)->is_none() ? member_of(call, item, *call.at(0)) : item,
        call.budget());
  return out;
}

Value indent(Call const& call) {
  bool const named = call.at(0) && call.at(0)->text();
  std::int64_t const width = named ? 0 : call.integer(0, 4);
  if (width > 1000) fail("indent: the width is more than 1000");
  std::string const space =
      named ? call.at(0)->text()->bytes
            : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  std::string out;
  bool begins = true;
  for (auto const& line : lines_of(text_of(call) + "\n")) {
    bool const first_line = std::exchange(begins, false);
    if (!first_line) out += '\n';
    if (first_line ? call.flag(1) : call.flag(2) || !line.empty()) out += space;
    out += line;
    Charge const bound(call.budget(), out.size());
    call.budget().step(line.size() + space.size());
  }
  return call.make(std::move(out));
}

/// Words after white space or an opening bracket in upper case.
Value title(Call const& call) {
  std::string out;
  std::string word;
  auto const flush = [&] {
    out += capitalized(word);
    word.clear();
  };
  std::string const text = text_of(call);
  for (auto const character : characters(text)) {
    std::size_t at = 0;
    char32_t const code = next_code_point(character, at);
    if (is_space(code) || std::string_view("-({[<").find(character) != std::string_view::npos) {
      flush();
      out += character;
    } else {
      word += character;
    }
  }
  flush();
  return call.make(std::move(out));
}

/// Python's json.dumps as transformers' tojson calls it.
Value to_json_text(Call const& call) {
  JsonStyle style;
  style.ascii = call.flag(0);
  if (Value const* given = call.at(1); given && !given->is_none()) {
    style.lines = true;
    style.item_separator = ",";
    if (given->text()) {
      style.indent = given->text()->bytes;
    } else {
      std::int64_t const width = call.integer(1, 0);
      if (width > 1000) fail("tojson: the indent is more than 1000");
      style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  if (Value const* given = call.at(2); given && !given->is_none()) {
    auto const* both = given->list();
    if (!both || both->items.size() != 2 || !both->items[0].text() || !both->items[1].text())
      fail("tojson: separators are two texts");
    style.item_separator = both->items[0].text()->bytes;
    style.key_separator = both->items[1].text()->bytes;
  }
  style.sorted = call.flag(3);
  return call.make(to_json(call.self, style, call.budget()));
}

constexpr Builtin all[] = {
    {"abs", "", absolute},
    {"attr", "!name",
     [](Call const& c) {
       bool const member = c.self.is<Namespace*>() || c.self.is<std::shared_ptr<Loop const>>();
       return member ? attribute_of(c.self, c.text(0, ""), c.budget()) : Value();
     }},
    {"capitalize", "", [](Call const& c) { return c.make(capitalized(text_of(c))); }},
    {"count", "", length_of},
    {"d", "default_value,boolean", default_value},
    {"default", "default_value,boolean", default_value},
    {"dictsort", "case_sensitive,by,reverse", sort_dict},
    {"first", "", first},
    {"float", "default", to_real},
    {"indent", "width,first,blank", indent},
    {"int", "default", to_integer},
    {"items", "", items},
    {"join", "d,attribute", join_all},
    {"last", "", last},
    {"length", "", length_of},
    {"list", "", [](Call const& c) { return list_of(c, items_of(c)); }},
    {"lower", "", [](Call const& c) { return c.make(in_lower_case(text_of(c))); }},
    {"map", "*", map},
    {"max", "case_sensitive,attribute",
     [](Call const& c) { return extreme(c, Extreme::greatest); }},
    {"min", "case_sensitive,attribute", [](Call const& c) { return extreme(c, Extreme::least); }},
    {"reject", "*", [](Call const& c) { return chosen(c, false, Of::item); }},
    {"rejectattr", "*", [](Call const& c) { return chosen(c, false, Of::attribute); }},
    {"replace", "!old,new,count",
     [](Call const& c) {
       if (!c.at(1)) fail("replace takes the old text and the new text");
       std::int64_t const count = c.at(2) && c.at(2)->is_none() ? -1 : c.integer(2, -1);
       return c.make(replaced(text_of(c), to_text(*c.at(0), c.budget()),
                              to_text(*c.at(1), c.budget()), count, c.budget()));
     }},
    {"reverse", "", reverse},
    {"safe", "", [](Call const& c) { return make_text(c.budget(), text_of(c), true); }},
    {"select", "*", [](Call const& c) { return chosen(c, true, Of::item); }},
    {"selectattr", "*", [](Call const& c) { return chosen(c, true, Of::attribute); }},
    {"sort", "reverse,case_sensitive,attribute", sort},
    {"string", "", [](Call const& c) { return c.self.text() ? c.self : c.make(text_of(c)); }},
    {"sum", "attribute,start", sum},
    {"title", "", title},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", to_json_text},
    {"trim", "chars",
     [](Call const& c) { return c.make(stripped(text_of(c), c.at(0), true, true)); }},
    {"unique", "case_sensitive,attribute", unique},
    {"upper", "", [](Call const& c) { return c.make(in_upper_case(text_of(c))); }}};

}  // namespace

std::span<Builtin const> filters() { return all; }

}  // namespace tessera::data::detail
