#include "chat/value.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {

void fail(std::string message) { throw TemplateError{std::move(message)}; }

void Budget::step(std::size_t bytes) {
  steps_ -= 1 + static_cast<std::int64_t>(bytes / 64);
  if (steps_ < 0) fail("the template needs more steps than one conversation may take");
}

void Budget::take(std::size_t bytes) {
  if (static_cast<std::int64_t>(bytes) > bytes_ - used_)
    fail(concat("the template needs more than ", human_bytes(bytes_), " of memory"));
  used_ += static_cast<std::int64_t>(bytes);
}

Text const* Value::text() const {
  auto const* held = get<std::shared_ptr<Text const>>();
  return held ? held->get() : nullptr;
}
List const* Value::list() const {
  auto const* held = get<std::shared_ptr<List const>>();
  return held ? held->get() : nullptr;
}
Dict const* Value::dict() const {
  auto const* held = get<std::shared_ptr<Dict const>>();
  return held ? held->get() : nullptr;
}
std::int64_t Value::integer() const {
  auto const* flag = get<bool>();
  return flag ? std::int64_t{*flag} : *get<std::int64_t>();
}
double Value::number() const {
  auto const* real = get<double>();
  return real ? *real : static_cast<double>(integer());
}

int depth_of(Value const& value) {
  if (auto const* list = value.list()) return list->depth;
  if (auto const* dict = value.dict()) return dict->depth;
  auto const* loop = value.get<std::shared_ptr<Loop const>>();
  return loop ? (*loop)->items->depth + 1 : 0;
}

Value const* Dict::find(std::string_view key) const {
  for (auto const& [name, value] : members)
    if (auto const* text = name.text(); text && text->bytes == key) return &value;
  return nullptr;
}

namespace {

void require_key(Value const& key) {
  bool const list = key.list() && key.list()->shape == List::Shape::list;
  if (list || key.dict()) fail(concat("a ", type_name(key), " cannot be a key of a dict"));
}

}  // namespace

Value const* Dict::find(Value const& key, Budget& budget) const {
  require_key(key);
  budget.step(8 * members.size());
  if (auto const* text = key.text()) return find(text->bytes);
  for (auto const& [name, value] : members)
    if (equal(name, key, budget)) return &value;
  return nullptr;
}

Value make_undefined(Budget& budget, std::string why) {
  Value const text = make_text(budget, std::move(why));
  return Value(Undefined{*text.get<std::shared_ptr<Text const>>()});
}

Value make_text(Budget& budget, std::string bytes, bool safe) {
  std::size_t const size = bytes.size();
  budget.step(size);
  std::shared_ptr<Text const> made(
      new Text{std::move(bytes), safe, Charge(budget, size + sizeof(Text))});
  return Value(std::move(made));
}

namespace {

int checked_depth(int depth) {
  if (depth > max_value_depth)
    fail(concat("lists and dicts are nested more than ", max_value_depth, " levels deep"));
  return depth;
}

}  // namespace

Value make_list(Budget& budget, std::vector<Value> items, List::Shape shape) {
  int depth = 0;
  for (auto const& item : items) depth = std::max(depth, depth_of(item));
  std::size_t const size = items.size() * sizeof(Value);
  budget.step(size);
  std::shared_ptr<List const> made(new List{std::move(items), shape, checked_depth(depth + 1),
                                            false, Charge(budget, size + sizeof(List))});
  return Value(std::move(made));
}

Value make_dict(Budget& budget, Pairs members) {
  int depth = 0;
  for (auto const& [key, value] : members)
    depth = std::max({depth, depth_of(key), depth_of(value)});
  std::size_t const size = members.size() * sizeof(Pairs::value_type);
  budget.step(size);
  std::shared_ptr<Dict const> made(
      new Dict{std::move(members), checked_depth(depth + 1), Charge(budget, size + sizeof(Dict))});
  return Value(std::move(made));
}

Value make_dict_of(Budget& budget, std::vector<Value> const& keys_and_values) {
  Pairs members;
  for (std::size_t i = 0; i + 1 < keys_and_values.size(); i += 2) {
    require_key(keys_and_values[i]);
    auto const found = std::ranges::find_if(members, [&](auto const& member) {
      return equal(member.first, keys_and_values[i], budget);
    });
    if (found != members.end())
      found->second = keys_and_values[i + 1];
    else
      members.emplace_back(keys_and_values[i], keys_and_values[i + 1]);
  }
  return make_dict(budget, std::move(members));
}

Value make_value(Budget& budget, ConfigTree const& tree) {
  budget.step();
  if (tree.is_null()) return Value::none();
  if (tree.is_bool()) return Value(tree.as_bool());
  if (tree.is_int()) return Value(tree.as_int());
  if (tree.is_number()) return Value(tree.as_double());
  if (tree.is_string()) return make_text(budget, tree.as_string());
  if (tree.is_array()) {
    std::vector<Value> items;
    for (auto const& item : tree.as_array()) items.push_back(make_value(budget, item));
    return make_list(budget, std::move(items));
  }
  Pairs members;
  for (auto const& [key, value] : tree.as_object())
    members.emplace_back(make_text(budget, key), make_value(budget, value));
  return make_dict(budget, std::move(members));
}

bool truth(Value const& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.number() != 0;
  if (auto const* text = value.text()) return !text->bytes.empty();
  if (auto const* list = value.list())
    return list->shape == List::Shape::generator || !list->items.empty();
  if (auto const* dict = value.dict()) return !dict->members.empty();
  return true;
}

bool equal(Value const& a, Value const& b, Budget& budget) {
  budget.step();
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.text() && b.text()) {
    budget.step(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
    return a.text()->bytes == b.text()->bytes;
  }
  if (auto const* x = a.list(), *y = b.list(); x && y) {
    if (x->shape == List::Shape::generator || x->shape != y->shape) return x == y;
    return std::ranges::equal(x->items, y->items, [&](Value const& left, Value const& right) {
      return equal(left, right, budget);
    });
  }
  if (auto const* x = a.dict(), *y = b.dict(); x && y) {
    return x->members.size() == y->members.size() &&
           std::ranges::all_of(x->members, [&](auto const& member) {
             auto const* found = y->find(member.first, budget);
             return found && equal(member.second, *found, budget);
           });
  }
  if (auto const* x = a.get<std::shared_ptr<Loop const>>()) {
    auto const* y = b.get<std::shared_ptr<Loop const>>();
    return y && *x == *y;
  }
  if (auto const* x = a.get<Namespace*>()) return b.is<Namespace*>() && *x == *b.get<Namespace*>();
  if (auto const* x = a.get<Macro const*>())
    return b.is<Macro const*>() && *x == *b.get<Macro const*>();
  if (auto const* x = a.get<Function>()) return b.is<Function>() && *x == *b.get<Function>();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare(Value const& a, Value const& b, Budget& budget) {
  budget.step();
  auto const order = [](auto const& x, auto const& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_integral() && b.is_integral()) return order(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return order(a.number(), b.number());
  if (a.text() && b.text()) {
    budget.step(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
    return order(a.text()->bytes, b.text()->bytes);
  }
  if (auto const* x = a.list(), *y = b.list(); x && y && x->shape == y->shape) {
    for (std::size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i)
      if (int const each = compare(x->items[i], y->items[i], budget); each != 0) return each;
    return order(x->items.size(), y->items.size());
  }
  fail(concat("'<' is not supported between ", type_name(a), " and ", type_name(b)));
}

std::string_view type_name(Value const& value) {
  if (value.is_none()) return "NoneType";
  if (value.is<bool>()) return "bool";
  if (value.is<std::int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.text()) return "str";
  if (value.dict()) return "dict";
  if (auto const* list = value.list())
    return list->shape == List::Shape::list    ? "list"
           : list->shape == List::Shape::tuple ? "tuple"
                                               : "generator";
  if (value.is<Namespace*>()) return "Namespace";
  if (value.is<Macro const*>()) return "Macro";
  if (value.is<Function>()) return "function";
  return value.is_undefined() ? "Undefined" : "LoopContext";
}

namespace {

/// The shortest text that reads as @p value again, as Python's repr() lays it out.
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto const end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string const text(buffer, end);
  int const exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;
  auto const fixed_end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string hex(char const* prefix, char32_t code, int digits) {
  std::string out(prefix);
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[(code >> (4 * i)) & 15];
  return out;
}

bool is_printable(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code == ' ';
    default:
      return true;
  }
}

std::string literal_of(std::string_view text) {
  bool const single = text.find('\'') == std::string_view::npos;
  char const quote = single || text.find('"') != std::string_view::npos ? '\'' : '"';
  std::string out(1, quote);
  for (std::size_t i = 0; i < text.size();) {
    std::size_t const begin = i;
    char32_t const code = next_code_point(text, i);
    if (code == '\\' || code == static_cast<unsigned char>(quote))
      out += {'\\', static_cast<char>(code)};
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (is_printable(code))
      out += text.substr(begin, i - begin);
    else
      out += code < 0x100     ? hex("\\x", code, 2)
             : code < 0x10000 ? hex("\\u", code, 4)
                              : hex("\\U", code, 8);
  }
  return out + quote;
}

void join_repr(std::vector<Value> const& items, std::string& out, Budget& budget) {
  for (std::size_t i = 0; i < items.size(); ++i)
    out += (i > 0 ? ", " : "") + to_repr(items[i], budget);
}

}  // namespace

std::string to_text(Value const& value, Budget& budget) {
  if (auto const* text = value.text()) {
    budget.step(text->bytes.size());
    return text->bytes;
  }
  return value.is_undefined() ? std::string() : to_repr(value, budget);
}

std::string to_repr(Value const& value, Budget& budget) {
  budget.step();
  if (value.is_none()) return "None";
  if (auto const* flag = value.get<bool>()) return *flag ? "True" : "False";
  if (auto const* integer = value.get<std::int64_t>()) return std::to_string(*integer);
  if (auto const* real = value.get<double>()) return real_text(*real);
  if (value.is_undefined()) return "Undefined";
  std::string out;
  if (auto const* text = value.text()) {
    out = literal_of(text->bytes);
  } else if (auto const* dict = value.dict()) {
    out = "{";
    for (auto const& [key, member] : dict->members)
      out += (out.size() > 1 ? ", " : "") + to_repr(key, budget) + ": " + to_repr(member, budget);
    out += "}";
  } else if (auto const* list = value.list(); list && list->shape != List::Shape::generator) {
    bool const tuple = list->shape == List::Shape::tuple;
    out = tuple ? "(" : "[";
    join_repr(list->items, out, budget);
    out += tuple ? (list->items.size() == 1 ? ",)" : ")") : "]";
  } else {
    fail(concat("a ", type_name(value), " cannot be written as text"));
  }
  budget.take(out.size());  // what nested calls build is bounded with it
  budget.give(out.size());
  budget.step(out.size());
  return out;
}

namespace {

void json_text(std::string_view text, bool ascii, std::string& out) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    std::size_t const begin = i;
    char32_t const code = next_code_point(text, i);
    constexpr std::string_view escaped = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    std::size_t const found =
        code < 0x80 ? escaped.find(static_cast<char>(code)) : std::string_view::npos;
    if (found != std::string_view::npos) {
      out += {'\\', letters[found]};
    } else if (code < 0x20 || (ascii && code > 0x7e)) {
      if (code > 0xffff) out += hex("\\u", 0xd800 + ((code - 0x10000) >> 10), 4);
      out += hex("\\u", code > 0xffff ? 0xdc00 + ((code - 0x10000) & 0x3ff) : code, 4);
    } else {
      out += text.substr(begin, i - begin);
    }
  }
  out += '"';
}

/// Writes a value with the layout of Python's json.dumps.
class JsonWriter {
 public:
  JsonWriter(JsonStyle const& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(Value const& value, int level) {
    budget_.step();
    if (auto const* dict = value.dict()) return write_dict(*dict, level);
    auto const* list = value.list();
    if (list && list->shape != List::Shape::generator) {
      out_ += '[';
      for (std::size_t i = 0; i < list->items.size(); ++i) {
        separate(i > 0, level + 1);
        write(list->items[i], level + 1);
      }
      if (!list->items.empty()) new_line(level);
      out_ += ']';
    } else if (auto const* text = value.text()) {
      check(text->bytes.size());
      json_text(text->bytes, style_.ascii, out_);
    } else {
      out_ += scalar(value);
    }
    check(0);
  }
  std::string take() { return std::move(out_); }

 private:
  void check(std::size_t more) const {
    budget_.step(more);
    budget_.take(out_.size() + more);
    budget_.give(out_.size() + more);
  }
  static std::string scalar(Value const& value) {
    if (value.is_none()) return "null";
    if (auto const* flag = value.get<bool>()) return *flag ? "true" : "false";
    if (auto const* integer = value.get<std::int64_t>()) return std::to_string(*integer);
    if (auto const* real = value.get<double>()) {
      if (std::isnan(*real)) return "NaN";
      return std::isinf(*real) ? (*real < 0 ? "-Infinity" : "Infinity") : real_text(*real);
    }
    fail(concat("tojson: a value of type ", type_name(value), " is not JSON"));
  }
  void new_line(int level) {
    if (!style_.lines) return;
    budget_.step(style_.indent.size() * static_cast<std::size_t>(level));
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += style_.indent;
  }
  void separate(bool after_another, int level) {
    if (after_another) out_ += style_.item_separator;
    new_line(level);
  }
  void write_dict(Dict const& dict, int level) {
    std::vector<std::pair<Value, Value> const*> members;
    for (auto const& member : dict.members) members.push_back(&member);
    if (style_.sorted)
      std::ranges::stable_sort(members, [&](auto const* a, auto const* b) {
        return compare(a->first, b->first, budget_) < 0;
      });
    out_ += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      separate(i > 0, level + 1);
      auto const* key = members[i]->first.text();
      json_text(key ? key->bytes : scalar(members[i]->first), style_.ascii, out_);
      out_ += style_.key_separator;
      write(members[i]->second, level + 1);
    }
    if (!members.empty()) new_line(level);
    out_ += '}';
    check(0);
  }

  JsonStyle const& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string to_json(Value const& value, JsonStyle const& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value, 0);
  return writer.take();
}

std::vector<Value> elements(Value const& value, Budget& budget) {
  if (value.is_undefined()) return {};
  if (auto const* list = value.list()) {
    budget.step(list->items.size() * sizeof(Value));
    if (list->shape != List::Shape::generator) return list->items;
    return std::exchange(list->read, true) ? std::vector<Value>() : list->items;
  }
  std::vector<Value> out;
  if (auto const* text = value.text()) {
    for (auto const character : characters(text->bytes))
      out.push_back(make_text(budget, std::string(character)));
  } else if (auto const* dict = value.dict()) {
    for (auto const& member : dict->members) out.push_back(member.first);
    budget.step(out.size() * sizeof(Value));
  } else {
    fail(concat("'", type_name(value), "' object is not iterable"));
  }
  return out;
}

std::int64_t length(Value const& value, Budget& budget) {
  if (value.is_undefined()) return 0;
  if (auto const* text = value.text()) {
    budget.step(text->bytes.size());
    return count_characters(text->bytes);
  }
  if (auto const* dict = value.dict()) return static_cast<std::int64_t>(dict->members.size());
  auto const* list = value.list();
  if (!list || list->shape == List::Shape::generator) return -1;
  return static_cast<std::int64_t>(list->items.size());
}

bool is_space(char32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
         code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t const begin = i;
    next_code_point(text, i);
    out.push_back(text.substr(begin, i - begin));
  }
  return out;
}

std::int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace tessera::data::detail
