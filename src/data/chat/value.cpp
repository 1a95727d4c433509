#include "chat/value.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/normalizer.hpp"

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

List const* Value::sequence() const {
  return list() && list()->shape != List::Shape::generator ? list() : nullptr;
}
std::int64_t Value::integer() const {
  auto const* flag = get<bool>();
  return flag ? std::int64_t{*flag} : *get<std::int64_t>();
}
double Value::number() const {
  auto const* real = get<double>();
  return real ? *real : static_cast<double>(integer());
}

namespace {

constexpr int deepest_value = 100;

/// The level of a list or a dict with this element.
int level_around(Value const& element) {
  int level = 0;
  if (auto const* list = element.list()) level = list->depth;
  if (auto const* dict = element.dict()) level = dict->depth;
  if (auto const* loop = element.loop()) level = loop->items->depth + 1;
  if (level >= deepest_value)
    fail(concat("lists and dicts are nested more than ", deepest_value, " levels deep"));
  return level + 1;
}

/// A value that takes memory of the budget while it lives: its own and that of @p bytes.
template <class T>
Value make_counted(Budget& budget, T value, std::size_t bytes) {
  bytes += sizeof(T);
  budget.take(bytes);
  return Value(std::shared_ptr<T const>(new T(std::move(value)), [&budget, bytes](T const* done) {
    budget.give(bytes);
    delete done;
  }));
}

std::string const& key_of(Pairs::value_type const& member) { return member.first.text()->bytes; }

}  // namespace

Value const* Dict::find(std::string_view key) const {
  auto const found = std::ranges::find(members, key, key_of);
  return found == members.end() ? nullptr : &found->second;
}

Value const* find_variable(Variables const& variables, std::string_view name) {
  auto const found = std::ranges::find(variables, name, &Variables::value_type::first);
  return found == variables.end() ? nullptr : &found->second;
}
void set_variable(Variables& variables, std::string_view name, Value value) {
  auto const found = std::ranges::find(variables, name, &Variables::value_type::first);
  if (found != variables.end())
    found->second = std::move(value);
  else
    variables.emplace_back(name, std::move(value));
}

Value make_constant(std::string bytes) {
  return Value(std::make_shared<Text const>(Text{std::move(bytes)}));
}

Value make_undefined(Budget& budget, std::string why) {
  Value const text = make_text(budget, std::move(why));
  return Value(Undefined{*text.get<std::shared_ptr<Text const>>()});
}

Value make_text(Budget& budget, std::string bytes, bool safe) {
  std::size_t const size = bytes.size();
  budget.step(size);
  return make_counted(budget, Text{std::move(bytes), safe}, size);
}

Value make_list(Budget& budget, std::vector<Value> items, List::Shape shape) {
  List made{std::move(items), shape};
  for (auto const& item : made.items) made.depth = std::max(made.depth, level_around(item));
  std::size_t const size = made.items.size() * sizeof(Value);
  budget.step(size);
  return make_counted(budget, std::move(made), size);
}

Value make_dict(Budget& budget, Pairs const& pairs) {
  Dict made;
  for (auto const& [key, value] : pairs) {
    if (!key.text())
      fail(concat("a ", type_name(key), " as a key of a dict is not supported; use text"));
    budget.step(8 * made.members.size());
    auto const found = std::ranges::find(made.members, key.text()->bytes, key_of);
    if (found != made.members.end())
      found->second = value;
    else
      made.members.emplace_back(key, value);
    made.depth = std::max(made.depth, level_around(value));
  }
  std::size_t const size = made.members.size() * sizeof(Pairs::value_type);
  return make_counted(budget, std::move(made), size);
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
  return make_dict(budget, members);
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
  if (auto const* x = a.sequence(), *y = b.sequence(); x && y && x->shape == y->shape)
    return std::ranges::equal(x->items, y->items, [&](Value const& left, Value const& right) {
      return equal(left, right, budget);
    });
  if (auto const* x = a.dict(), *y = b.dict(); x && y) {
    return x->members.size() == y->members.size() &&
           std::ranges::all_of(x->members, [&](auto const& member) {
             auto const* found = y->find(key_of(member), budget);
             return found && equal(member.second, *found, budget);
           });
  }
  return a.variant() == b.variant();
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
  fail(concat("'<' is not supported between ", type_name(a), " and ", type_name(b)));
}

std::string_view type_name(Value const& value) {
  constexpr std::string_view names[] = {"Undefined", "NoneType",  "bool",  "int",
                                        "float",     "str",       "list",  "dict",
                                        "loop",      "Namespace", "Macro", "function"};
  static_assert(std::size(names) == std::variant_size_v<Value::Variant>);
  if (auto const* list = value.list(); list && list->shape != List::Shape::list)
    return list->shape == List::Shape::tuple ? "tuple" : "generator";
  return names[value.variant().index()];
}

namespace {

/// The shortest text that reads as @p value again, as Python's repr() lays it out.
std::string real_text(double value) {
  if (!std::isfinite(value)) fail("a number is not finite");
  std::string const text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

/// Writes values with the layout of Python's json.dumps, or of its repr().
class Writer {
 public:
  enum class Notation { json, python };
  Writer(Notation notation, JsonStyle const& style, Budget& budget)
      : json_(notation == Notation::json), style_(style), budget_(budget) {}

  std::string written(Value const& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(Value const& value, std::size_t level) {
    if (auto const* dict = value.dict()) {
      write_all("{", members_of(*dict), "}", level, [&](auto const& member) {
        write_text(key_of(member));
        out_ += style_.key_separator;
        write(member.second, level + 1);
      });
    } else if (auto const* list = value.sequence()) {
      bool const tuple = !json_ && list->shape == List::Shape::tuple;
      std::string_view const close = !tuple ? "]" : list->items.size() == 1 ? ",)" : ")";
      write_all(tuple ? "(" : "[", list->items, close, level,
                [&](Value const& item) { write(item, level + 1); });
    } else if (auto const* text = value.text()) {
      write_text(text->bytes);
    } else {
      write_scalar(value);
    }
    bound(0);
  }

  /// Fails where what is written and @p more bytes are beyond the budget.
  void bound(std::size_t more) const {
    budget_.step(more);
    budget_.check(out_.size() + more);
  }
  Pairs members_of(Dict const& dict) const {
    Pairs members = dict.members;
    if (style_.sorted)
      std::ranges::sort(members, [&](auto const& a, auto const& b) {
        return compare(a.first, b.first, budget_) < 0;
      });
    return members;
  }
  template <class Elements, class Write>
  void write_all(std::string_view open, Elements const& elements, std::string_view close,
                 std::size_t level, Write write_element) {
    out_ += open;
    for (auto const& element : elements) {
      if (&element != elements.data()) out_ += style_.item_separator;
      new_line(level + 1);
      write_element(element);
    }
    if (!elements.empty()) new_line(level);
    out_ += close;
  }
  void new_line(std::size_t level) {
    if (!style_.lines) return;
    bound(style_.indent * level + 1);
    out_ += '\n';
    out_.append(style_.indent * level, ' ');
  }
  void write_scalar(Value const& value) {
    if (value.is_none())
      out_ += json_ ? "null" : "None";
    else if (auto const* flag = value.get<bool>())
      out_ += *flag ? (json_ ? "true" : "True") : (json_ ? "false" : "False");
    else if (value.is_integral())
      out_ += std::to_string(value.integer());
    else if (value.is_number())
      out_ += real_text(value.number());
    else if (value.is_undefined() && !json_)
      out_ += "Undefined";
    else
      fail(concat("a value of type ", type_name(value), " cannot be written as text"));
  }
  void write_text(std::string_view text) {
    bound(2 * text.size());
    bool const single = text.find('\'') == std::string_view::npos;
    char const quote = !json_ && (single || text.find('"') != std::string_view::npos) ? '\'' : '"';
    std::string_view const escaped = json_ ? "\\\n\r\t\f\b" : "\\\n\r\t", letters = "\\nrtfb";
    out_ += quote;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t const begin = i;
      char32_t const code = next_code_point(text, i);
      char const ascii = code < 0x80 ? static_cast<char>(code) : ' ';
      if (std::size_t const found = escaped.find(ascii); found != std::string_view::npos)
        out_ += {'\\', letters[found]};
      else if (ascii == quote)
        out_ += {'\\', quote};
      else if (is_printed(code))
        out_ += text.substr(begin, i - begin);
      else
        out_ += escape_of(code);
    }
    out_ += quote;
  }
  bool is_printed(char32_t code) const {
    if (json_) return code >= 0x20 && (!style_.ascii || code < 0x7f);
    auto const category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    return code == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
  }
  std::string escape_of(char32_t code) const {
    auto const number = static_cast<std::uint32_t>(code);
    if (json_ && number > 0xffff)  // surrogates
      return fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (number >> 10), 0xdc00 + (number & 0x3ff));
    if (number > 0xffff) return fmt::format("\\U{:08x}", number);
    return json_ || number > 0xff ? fmt::format("\\u{:04x}", number)
                                  : fmt::format("\\x{:02x}", number);
  }

  bool json_;
  JsonStyle style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string to_json(Value const& value, JsonStyle const& style, Budget& budget) {
  return Writer(Writer::Notation::json, style, budget).written(value);
}

std::string to_repr(Value const& value, Budget& budget) {
  return Writer(Writer::Notation::python, {}, budget).written(value);
}

std::string to_text(Value const& value, Budget& budget) {
  if (auto const* text = value.text()) {
    budget.step(text->bytes.size());
    return text->bytes;
  }
  return value.is_undefined() ? std::string() : to_repr(value, budget);
}

std::vector<Value> elements(Value const& value, Budget& budget) {
  if (value.is_undefined()) return {};
  std::vector<Value> out;
  if (auto const* list = value.list()) {
    bool const ended = list->shape == List::Shape::generator && std::exchange(list->read, true);
    if (!ended) out = list->items;
  } else if (auto const* text = value.text()) {
    for (auto const character : characters(text->bytes))
      out.push_back(make_text(budget, std::string(character)));
  } else if (auto const* dict = value.dict()) {
    for (auto const& member : dict->members) out.push_back(member.first);
  } else {
    fail(concat("'", type_name(value), "' object is not iterable"));
  }
  budget.step(out.size() * sizeof(Value));
  return out;
}

std::int64_t length(Value const& value, Budget& budget) {
  if (value.is_undefined()) return 0;
  if (auto const* list = value.sequence()) return static_cast<std::int64_t>(list->items.size());
  if (auto const* dict = value.dict()) return static_cast<std::int64_t>(dict->members.size());
  if (!value.text()) return -1;
  budget.step(value.text()->bytes.size());
  return std::ranges::count_if(value.text()->bytes, [](char c) { return (c & 0xc0) != 0x80; });
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

std::string_view stripped(std::string_view text, bool left, bool right, std::string_view removed) {
  auto const is_removed = [&](std::string_view character) {
    std::size_t end = 0;
    char32_t const code = next_code_point(character, end);
    return removed.empty() ? is_white_space(code) || (code >= 0x1c && code <= 0x1f)
                           : removed.find(character) != std::string_view::npos;
  };
  while (left && !text.empty()) {
    std::size_t end = 0;
    next_code_point(text, end);
    if (!is_removed(text.substr(0, end))) break;
    text.remove_prefix(end);
  }
  while (right && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xc0) == 0x80) --last;
    if (!is_removed(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

}  // namespace tessera::data::detail
