#include "chat/value.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
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

std::int64_t Value::integer() const {
  auto const* flag = get<bool>();
  return flag ? std::int64_t{*flag} : *get<std::int64_t>();
}
double Value::number() const {
  auto const* real = get<double>();
  return real ? *real : static_cast<double>(integer());
}

Value const* Dict::find(std::string_view key) const {
  for (auto const& [name, value] : members)
    if (name.text()->bytes == key) return &value;
  return nullptr;
}

namespace {

constexpr int deepest_value = 100;

int depth_of(Value const& value) {
  if (auto const* list = value.list()) return list->depth;
  if (auto const* dict = value.dict()) return dict->depth;
  return value.loop() ? value.loop()->items->depth + 1 : 0;
}

int checked_depth(int depth) {
  if (depth > deepest_value)
    fail(concat("lists and dicts are nested more than ", deepest_value, " levels deep"));
  return depth;
}

}  // namespace

Value make_undefined(Budget& budget, std::string why) {
  Value const text = make_text(budget, std::move(why));
  return Value(Undefined{*text.get<std::shared_ptr<Text const>>()});
}

Value make_text(Budget& budget, std::string bytes, bool safe) {
  std::size_t const size = bytes.size();
  budget.step(size);
  return Value(std::shared_ptr<Text const>(
      new Text{std::move(bytes), safe, Charge(budget, size + sizeof(Text))}));
}

Value make_list(Budget& budget, std::vector<Value> items, List::Shape shape) {
  int depth = 0;
  for (auto const& item : items) depth = std::max(depth, depth_of(item));
  std::size_t const size = items.size() * sizeof(Value);
  budget.step(size);
  return Value(
      std::shared_ptr<List const>(new List{std::move(items), shape, checked_depth(depth + 1), false,
                                           Charge(budget, size + sizeof(List))}));
}

Value make_dict(Budget& budget, Pairs const& pairs) {
  Pairs members;
  int depth = 0;
  for (auto const& [key, value] : pairs) {
    if (!key.text())
      fail(concat("a ", type_name(key), " as a key of a dict is not supported; use text"));
    budget.step(8 * members.size());
    auto const found = std::ranges::find_if(members, [&key = key](auto const& member) {
      return member.first.text()->bytes == key.text()->bytes;
    });
    if (found != members.end())
      found->second = value;
    else
      members.emplace_back(key, value);
    depth = std::max(depth, depth_of(value));
  }
  std::size_t const size = members.size() * sizeof(Pairs::value_type);
  return Value(std::shared_ptr<Dict const>(
      new Dict{std::move(members), checked_depth(depth + 1), Charge(budget, size + sizeof(Dict))}));
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
  if (auto const* x = a.list(), *y = b.list();
      x && y && x->shape == y->shape && x->shape != List::Shape::generator)
    return std::ranges::equal(x->items, y->items, [&](Value const& left, Value const& right) {
      return equal(left, right, budget);
    });
  if (auto const* x = a.dict(), *y = b.dict(); x && y) {
    return x->members.size() == y->members.size() &&
           std::ranges::all_of(x->members, [&](auto const& member) {
             budget.step(8 * y->members.size());
             auto const* found = y->find(member.first.text()->bytes);
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
  char buffer[400];
  auto const written = [&](std::chars_format format) {
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  };
  if (!std::isfinite(value)) fail("a number is not finite");
  std::string const scientific = written(std::chars_format::scientific);
  int const exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  std::string const fixed = written(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

/// Writes values with the layout of Python's json.dumps, or of its repr().
class Writer {
 public:
  enum class Notation { json, python };
  Writer(Notation notation, JsonStyle const& style, Budget& budget)
      : json_(notation == Notation::json), style_(style), budget_(budget) {}

  void write(Value const& value, std::size_t level = 0) {
    auto const* list = value.list();
    if (auto const* dict = value.dict()) {
      write_dict(*dict, level);
    } else if (list && list->shape != List::Shape::generator) {
      bool const tuple = !json_ && list->shape == List::Shape::tuple;
      out_ += tuple ? '(' : '[';
      for (auto const& item : list->items) {
        separate(&item != list->items.data(), level + 1);
        write(item, level + 1);
      }
      if (tuple && list->items.size() == 1) out_ += ',';
      if (!list->items.empty()) new_line(level);
      out_ += tuple ? ')' : ']';
    } else if (auto const* text = value.text()) {
      write_text(text->bytes);
    } else {
      write_scalar(value);
    }
    check(0);
  }
  std::string take() { return std::move(out_); }

 private:
  /// Bounds the text that has been written.
  void check(std::size_t more) const {
    budget_.step(more);
    Charge const charge(budget_, out_.size() + more);
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
  void write_dict(Dict const& dict, std::size_t level) {
    Pairs members = dict.members;
    if (style_.sorted)
      std::ranges::sort(members, [&](auto const& a, auto const& b) {
        return compare(a.first, b.first, budget_) < 0;
      });
    out_ += '{';
    for (auto const& member : members) {
      separate(&member != members.data(), level + 1);
      write_text(member.first.text()->bytes);
      out_ += style_.key_separator;
      write(member.second, level + 1);
    }
    if (!members.empty()) new_line(level);
    out_ += '}';
  }
  void new_line(std::size_t level) {
    if (!style_.lines) return;
    check(style_.indent * level + 1);
    out_ += '\n';
    out_.append(style_.indent * level, ' ');
  }
  void separate(bool after_another, std::size_t level) {
    if (after_another) out_ += style_.item_separator;
    new_line(level);
  }
  void write_text(std::string_view text) {
    check(2 * text.size());
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
      else if (is_written(code))
        out_ += text.substr(begin, i - begin);
      else
        write_escape(code);
    }
    out_ += quote;
  }
  bool is_written(char32_t code) const {
    if (json_) return code >= 0x20 && (!style_.ascii || code < 0x7f);
    auto const category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    return code == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
  }
  void write_escape(char32_t code) {
    auto const hex = [&](char const* prefix, char32_t number, int digits) {
      out_ += prefix;
      while (digits-- > 0) out_ += "0123456789abcdef"[(number >> (4 * digits)) & 15];
    };
    if (code > 0xffff && json_) {
      hex("\\u", 0xd800 + ((code - 0x10000) >> 10), 4);
      hex("\\u", 0xdc00 + ((code - 0x10000) & 0x3ff), 4);
    } else if (code > 0xffff) {
      hex("\\U", code, 8);
    } else if (json_ || code > 0xff) {
      hex("\\u", code, 4);
    } else {
      hex("\\x", code, 2);
    }
  }

  bool json_;
  JsonStyle const& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string to_json(Value const& value, JsonStyle const& style, Budget& budget) {
  Writer writer(Writer::Notation::json, style, budget);
  writer.write(value);
  return writer.take();
}

std::string to_repr(Value const& value, Budget& budget) {
  JsonStyle const style;
  Writer writer(Writer::Notation::python, style, budget);
  writer.write(value);
  return writer.take();
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
  auto const* list = value.list();
  if (value.is_undefined()) return 0;
  if (list && list->shape == List::Shape::generator) return -1;
  if (list) return static_cast<std::int64_t>(list->items.size());
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
  auto const is_removed = [&](std::size_t begin, std::size_t end) {
    std::size_t at = begin;
    char32_t const code = next_code_point(text, at);
    return removed.empty()
               ? is_white_space(code) || (code >= 0x1c && code <= 0x1f)
               : removed.find(text.substr(begin, end - begin)) != std::string_view::npos;
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    std::size_t next = begin;
    next_code_point(text, next);
    if (!is_removed(begin, next)) break;
    begin = next;
  }
  while (right && end > begin) {
    std::size_t last = end - 1;
    while (last > begin && (text[last] & 0xc0) == 0x80) --last;
    if (!is_removed(last, end)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

}  // namespace tessera::data::detail
