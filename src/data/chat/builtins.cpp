#include "chat/interpreter.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/normalizer.hpp"

namespace tessera::data::detail {

Budget& Call::budget() const { return interpreter.budget(); }

std::string Call::text(std::size_t i) const {
  Value const* value = at(i);
  if (!value) return "";
  if (!value->text()) fail(concat("an argument is a ", type_name(*value), "; text is expected"));
  return value->text()->bytes;
}

std::int64_t Call::integer(std::size_t i, std::int64_t standard) const {
  Value const* value = at(i);
  if (!value) return standard;
  if (!value->is_integral())
    fail(concat("an argument is a ", type_name(*value), "; an integer is expected"));
  return value->integer();
}

std::vector<Value const*> by_parameter(std::string_view function,
                                       std::span<std::string_view const> parameters,
                                       Arguments const& arguments) {
  auto const& [positional, keywords] = arguments;
  if (positional.size() > parameters.size())
    fail(concat(function, " takes no more than ", parameters.size(), " arguments"));
  std::vector<Value const*> out(parameters.size());
  for (std::size_t i = 0; i < positional.size(); ++i) out[i] = &positional[i];
  for (auto const& [name, value] : keywords) {
    auto const found = std::ranges::find(parameters, name);
    if (found == parameters.end()) fail(concat(function, " has no parameter '", name, "'"));
    auto& argument = out[static_cast<std::size_t>(found - parameters.begin())];
    if (argument) fail(concat(function, " gets '", name, "' twice"));
    argument = &value;
  }
  return out;
}

namespace {

std::string text_of(Call const& call) { return to_text(call.self, call.budget()); }
std::vector<Value> items_of(Call const& call) { return elements(call.self, call.budget()); }
Value list_of(Call const& call, std::vector<Value> items) {
  return make_list(call.budget(), std::move(items));
}
Value generator_of(Call const& call, std::vector<Value> items) {
  return make_list(call.budget(), std::move(items), List::Shape::generator);
}

// Text

std::string upper_case(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    char32_t const code = next_code_point(text, i);
    if (code == 0xdf)
      out += "SS";  // the one letter in texts that has two capital letters
    else
      append_code_point(
          static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))), out);
  }
  return out;
}

Value capitalize(Call const& call) {
  std::string const text = text_of(call);
  if (text.empty()) return call.make("");
  std::size_t end = 0;
  next_code_point(text, end);
  std::string const first = upper_case(text.substr(0, end));
  return call.make((first == "SS" ? "Ss" : first) + lowercased(text.substr(end)));
}

Value strip(Call const& call, bool left, bool right) {
  std::string const text = text_of(call);
  if (!call.optional(0)) return call.make(stripped(text, left, right));
  std::string const removed = call.text(0);
  return removed.empty() ? call.make(text) : call.make(stripped(text, left, right, removed));
}

Value replace(Call const& call) {
  std::string const text = text_of(call), from = to_text(*call.at(0), call.budget()),
                    to = to_text(*call.at(1), call.budget());
  if (from.empty()) fail("replace: the text to replace is empty");
  std::string out;
  std::size_t done = 0;
  for (std::size_t found = text.find(from); found != std::string::npos;
       found = text.find(from, done)) {
    call.budget().step(to.size());
    call.budget().check(out.size() + to.size());
    out.append(text, done, found - done).append(to);
    done = found + from.size();
  }
  return call.make(out.append(text, done));
}

Value split(Call const& call) {
  std::string_view rest = call.self.text()->bytes;
  std::string const separator = call.text(0);
  if (separator.empty()) fail("split: the separator is empty");
  std::int64_t const count = call.integer(1, -1);
  std::vector<Value> parts;
  for (std::size_t found = rest.find(separator);
       found != std::string_view::npos && static_cast<std::int64_t>(parts.size()) != count;
       found = rest.find(separator)) {
    parts.push_back(call.make(rest.substr(0, found)));
    rest.remove_prefix(found + separator.size());
  }
  parts.push_back(call.make(rest));
  return list_of(call, std::move(parts));
}

/// Python's json.dumps as transformers' tojson calls it.
Value to_json_text(Call const& call) {
  JsonStyle style;
  style.ascii = call.flag(0);
  style.sorted = call.flag(3);
  if (call.optional(1)) {
    std::int64_t const width = call.integer(1, 0);
    if (width < 0 || width > 1000) fail("tojson: the indent is not between 0 and 1000");
    style.lines = true;
    style.item_separator = ",";
    style.indent = static_cast<std::size_t>(width);
  }
  if (auto const* separators = call.optional(2)) {
    auto const* both = separators->list();
    if (!both || both->items.size() != 2 || !both->items[0].text() || !both->items[1].text())
      fail("tojson: separators are two texts");
    style.item_separator = both->items[0].text()->bytes;
    style.key_separator = both->items[1].text()->bytes;
  }
  return call.make(to_json(call.self, style, call.budget()));
}

// Lists and dicts

/// The member that a path such as "function.name" names.
Value member_of(Call const& call, Value const& item, Value const& path) {
  if (!path.text()) fail(concat("an attribute is named by text, not by a ", type_name(path)));
  Value out = item;
  std::string_view names = path.text()->bytes;
  while (true) {
    std::size_t const end = std::min(names.find('.'), names.size());
    out = item_of(out, call.make(names.substr(0, end)), call.budget());
    if (end == names.size()) return out;
    names.remove_prefix(end + 1);
  }
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
  return items.empty() ? make_undefined(call.budget(), "first: there is no item") : items.front();
}
Value last(Call const& call) {
  if (length(call.self, call.budget()) < 0)
    fail("last: the input can only be read from its begin; put the filter `list` before it");
  auto const items = items_of(call);
  return items.empty() ? make_undefined(call.budget(), "last: there is no item") : items.back();
}

Value join(Call const& call) {
  std::string out, separator = call.at(0) ? to_text(*call.at(0), call.budget()) : "";
  bool begins = true;
  for (auto const& item : items_of(call)) {
    if (!std::exchange(begins, false)) out += separator;
    out += to_text(item, call.budget());
    call.budget().check(out.size());
  }
  return call.make(out);
}

/// The members of a dict as tuples of key and value.
std::vector<Value> pairs_of(Call const& call) {
  if (!call.self.dict()) fail(concat("a ", type_name(call.self), " is not a mapping"));
  std::vector<Value> out;
  for (auto const& [key, value] : call.self.dict()->members)
    out.push_back(make_list(call.budget(), {key, value}, List::Shape::tuple));
  return out;
}

Value items(Call const& call) {
  return generator_of(call, call.self.is_undefined() ? std::vector<Value>() : pairs_of(call));
}

/// Sorts by key without case.
Value sort_dict(Call const& call) {
  auto pairs = pairs_of(call);
  std::ranges::stable_sort(pairs, {}, [&](Value const& pair) {
    std::string const& key = pair.list()->items[0].text()->bytes;
    call.budget().step(key.size());
    return lowercased(key);
  });
  return list_of(call, std::move(pairs));
}

Value values(Call const& call) {
  std::vector<Value> out;
  for (auto const& member : call.self.dict()->members) out.push_back(member.second);
  return list_of(call, std::move(out));
}

Value get(Call const& call) {
  auto const* key = call.at(0)->text();
  auto const* found = key ? call.self.dict()->find(key->bytes, call.budget()) : nullptr;
  return found ? *found : call.at(1) ? *call.at(1) : Value::none();
}

Value map(Call const& call) {
  auto const& [positional, keywords] = call.arguments;
  std::vector<Value> out;
  if (positional.empty()) {
    constexpr std::string_view parameters[] = {"attribute", "default"};
    auto const given = by_parameter("map", parameters, call.arguments);
    if (!given[0]) fail("map takes attribute and default, or the name of a filter");
    for (auto const& item : items_of(call)) {
      out.push_back(member_of(call, item, *given[0]));
      if (given[1] && out.back().is_undefined()) out.back() = *given[1];
    }
    return generator_of(call, std::move(out));
  }
  if (!positional[0].text()) fail("the name of a filter is not text");
  Arguments const rest{{positional.begin() + 1, positional.end()}, keywords};
  for (auto const& item : items_of(call))
    out.push_back(
        call.interpreter.apply(Builtin::Kind::filter, positional[0].text()->bytes, item, rest));
  return generator_of(call, std::move(out));
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
    Value subject = of == Of::attribute ? member_of(call, item, given[0]) : item;
    if (given.size() > test)
      subject =
          call.interpreter.apply(Builtin::Kind::test, given[test].text()->bytes, subject, rest);
    if (truth(subject) == keeps) out.push_back(item);
  }
  return generator_of(call, std::move(out));
}

// Functions

Value range(Call const& call) {
  constexpr std::int64_t most = 100'000;  // as Jinja's sandbox
  bool const one = !call.at(1);
  std::int64_t const begin = one ? 0 : call.integer(0, 0), end = call.integer(one ? 0 : 1, 0);
  std::int64_t const step = call.integer(2, 1);
  if (step == 0) fail("range: the step is zero");
  std::vector<Value> out;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(out.size()) == most)
      fail(concat("range: there are more than ", most, " numbers"));
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return list_of(call, std::move(out));
}

Value time_text(Call const& call) {
  std::time_t const now = call.interpreter.time();
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::string const format = call.text(0);
  if (format.size() > 256) fail("strftime_now: the format is longer than 256 bytes");
  char buffer[4096];
  return call.make({buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &parts)});
}

Value raise(Call const& call) {
  fail("the template refuses the conversation: " + to_text(*call.at(0), call.budget()));
}

// Tests

template <class Holds>
constexpr auto test(Holds) {
  return [](Call const& call) { return Value(bool{Holds{}(call)}); };
}
bool is_flag(Value const& value, bool flag) {
  return value.is<bool>() && *value.get<bool>() == flag;
}
/// Has an order and a length.
bool is_sequence(Value const& value) {
  return value.is_undefined() || value.text() || value.dict() || value.sequence();
}

constexpr auto filter = Builtin::Kind::filter, a_test = Builtin::Kind::test,
               function = Builtin::Kind::function, text_method = Builtin::Kind::text_method,
               dict_method = Builtin::Kind::dict_method;
constexpr int any = Builtin::any;
constexpr auto equals = test([](Call const& c) { return equal(c.self, *c.at(0), c.budget()); });
constexpr auto differs = test([](Call const& c) { return !equal(c.self, *c.at(0), c.budget()); });
constexpr auto lower = [](Call const& c) { return c.make(lowercased(text_of(c))); };
constexpr auto upper = [](Call const& c) { return c.make(upper_case(text_of(c))); };
constexpr auto trim = [](Call const& c) { return strip(c, true, true); };
constexpr auto list = [](Call const& c) { return list_of(c, items_of(c)); };
constexpr auto string = [](Call const& c) { return c.self.text() ? c.self : c.make(text_of(c)); };
constexpr auto make_space = [](Call const& c) { return c.interpreter.make_namespace(c.arguments); };

constexpr Builtin builtins[] = {
    {filter, "capitalize", 0, {}, capitalize},
    {filter, "count", 0, {}, length_of},
    {filter, "d", 0, {"default_value", "boolean"}, default_value},
    {filter, "default", 0, {"default_value", "boolean"}, default_value},
    {filter, "dictsort", 0, {}, sort_dict},
    {filter, "first", 0, {}, first},
    {filter, "items", 0, {}, items},
    {filter, "join", 0, {"d"}, join},
    {filter, "last", 0, {}, last},
    {filter, "length", 0, {}, length_of},
    {filter, "list", 0, {}, list},
    {filter, "lower", 0, {}, lower},
    {filter, "map", any, {}, map},
    {filter, "reject", any, {}, [](Call const& c) { return chosen(c, false, Of::item); }},
    {filter, "rejectattr", any, {}, [](Call const& c) { return chosen(c, false, Of::attribute); }},
    {filter, "replace", 2, {"old", "new"}, replace},
    {filter, "safe", 0, {}, [](Call const& c) { return make_text(c.budget(), text_of(c), true); }},
    {filter, "select", any, {}, [](Call const& c) { return chosen(c, true, Of::item); }},
    {filter, "selectattr", any, {}, [](Call const& c) { return chosen(c, true, Of::attribute); }},
    {filter, "string", 0, {}, string},
    {filter, "tojson", 0, {"ensure_ascii", "indent", "separators", "sort_keys"}, to_json_text},
    {filter, "trim", 0, {"chars"}, trim},
    {filter, "upper", 0, {}, upper},

    {a_test, "boolean", 0, {}, test([](Call const& c) { return c.self.is<bool>(); })},
    {a_test, "defined", 0, {}, test([](Call const& c) { return !c.self.is_undefined(); })},
    {a_test, "false", 0, {}, test([](Call const& c) { return is_flag(c.self, false); })},
    {a_test, "float", 0, {}, test([](Call const& c) { return c.self.is<double>(); })},
    {a_test, "integer", 0, {}, test([](Call const& c) { return c.self.is<std::int64_t>(); })},
    {a_test, "iterable", 0, {}, test([](Call const& c) {
       return c.self.loop() || c.self.list() || is_sequence(c.self);
     })},
    {a_test, "mapping", 0, {}, test([](Call const& c) { return c.self.dict() != nullptr; })},
    {a_test, "none", 0, {}, test([](Call const& c) { return c.self.is_none(); })},
    {a_test, "number", 0, {}, test([](Call const& c) { return c.self.is_number(); })},
    {a_test, "sequence", 0, {}, test([](Call const& c) { return is_sequence(c.self); })},
    {a_test, "string", 0, {}, test([](Call const& c) { return c.self.text() != nullptr; })},
    {a_test, "true", 0, {}, test([](Call const& c) { return is_flag(c.self, true); })},
    {a_test, "undefined", 0, {}, test([](Call const& c) { return c.self.is_undefined(); })},
    {a_test, "in", 1, {"seq"}, test([](Call const& c) {
       return contains(*c.at(0), c.self, c.budget());
     })},
    {a_test, "equalto", 1, {"b"}, equals},
    {a_test, "eq", 1, {"b"}, equals},
    {a_test, "==", 1, {"b"}, equals},
    {a_test, "ne", 1, {"b"}, differs},
    {a_test, "!=", 1, {"b"}, differs},

    {function, "namespace", any, {}, make_space},
    {function, "raise_exception", 1, {"message"}, raise},
    {function, "range", 1, {"start", "stop", "step"}, range},
    {function, "strftime_now", 1, {"format"}, time_text},

    {text_method, "capitalize", 0, {}, capitalize},
    {text_method, "endswith", 1, {"suffix"}, test([](Call const& c) {
       return c.self.text()->bytes.ends_with(c.text(0));
     })},
    {text_method, "lower", 0, {}, lower},
    {text_method, "lstrip", 0, {"chars"}, [](Call const& c) { return strip(c, true, false); }},
    {text_method, "replace", 2, {"old", "new"}, replace},
    {text_method, "rstrip", 0, {"chars"}, [](Call const& c) { return strip(c, false, true); }},
    {text_method, "split", 1, {"sep", "maxsplit"}, split},
    {text_method, "startswith", 1, {"prefix"}, test([](Call const& c) {
       return c.self.text()->bytes.starts_with(c.text(0));
     })},
    {text_method, "strip", 0, {"chars"}, trim},
    {text_method, "upper", 0, {}, upper},

    {dict_method, "get", 1, {"key", "default"}, get},
    {dict_method, "items", 0, {}, [](Call const& c) { return list_of(c, pairs_of(c)); }},
    {dict_method, "keys", 0, {}, list},
    {dict_method, "values", 0, {}, values}};

}  // namespace

Builtin const* find_builtin(Builtin::Kind kind, std::string_view name) {
  auto const found = std::ranges::find_if(
      builtins, [&](auto const& each) { return each.kind == kind && each.name == name; });
  return found == std::end(builtins) ? nullptr : &*found;
}

Builtin const* find_method(Value const& value, std::string_view name) {
  if (value.text()) return find_builtin(text_method, name);
  return value.dict() ? find_builtin(dict_method, name) : nullptr;
}

std::string unknown(Builtin::Kind kind, std::string_view name) {
  constexpr std::string_view kinds[] = {"filter", "test", "function", "method", "method"};
  std::vector<std::string> known;
  for (auto const& each : builtins)
    if (each.kind == kind) known.emplace_back(each.name);
  return concat("the ", kinds[static_cast<std::size_t>(kind)], " '", name,
                "' is not supported; known are ", tessera::join(known));
}

}  // namespace tessera::data::detail
