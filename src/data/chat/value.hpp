#pragma once
/// Values of chat templates, with the semantics of Python's: text, numbers, lists, dicts and what
/// only templates have. Values do not change, except namespaces.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

/// An operation that a template cannot do; the interpreter adds the line.
struct TemplateError {
  std::string message;
};
[[noreturn]] void fail(std::string message);

/// Counts the work and the live memory of a rendering. @throws TemplateError beyond the limits.
class Budget {
 public:
  Budget(std::int64_t steps, std::int64_t bytes) : steps_(steps), bytes_(bytes) {}
  /// Counts one step, and one more for each 64 bytes that are copied or compared.
  void step(std::size_t bytes = 0);
  void take(std::size_t bytes);
  void give(std::size_t bytes) { used_ -= static_cast<std::int64_t>(bytes); }
  /// Fails unless @p bytes more may be taken.
  void check(std::size_t bytes) {
    take(bytes);
    give(bytes);
  }

 private:
  std::int64_t steps_, bytes_, used_ = 0;
};

class Value;
struct Text;
struct List;
struct Dict;
struct Loop;
struct Namespace;
struct Macro;
struct Builtin;

struct Undefined {
  std::shared_ptr<Text const> why;  ///< for messages
  bool operator==(Undefined const&) const { return true; }
};
class Value {
 public:
  using Variant = std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double,
                               std::shared_ptr<Text const>, std::shared_ptr<List const>,
                               std::shared_ptr<Dict const>, std::shared_ptr<Loop const>, Namespace*,
                               Macro const*,
                               Builtin const*>;  ///< a function, or a method that is not called

  Value() = default;  ///< undefined
  template <class T>
  explicit Value(T value) : value_(std::in_place_type<T>, std::move(value)) {}
  static Value none() { return Value(nullptr); }

  /// Null for other kinds.
  template <class T>
  T const* get() const {
    return std::get_if<T>(&value_);
  }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  Text const* text() const { return held<Text>(); }
  List const* list() const { return held<List>(); }
  List const* sequence() const;  ///< a list or a tuple, no generator
  Dict const* dict() const { return held<Dict>(); }
  Loop const* loop() const { return held<Loop>(); }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<std::nullptr_t>(); }
  /// Integers and booleans.
  bool is_integral() const { return is<std::int64_t>() || is<bool>(); }
  bool is_number() const { return is_integral() || is<double>(); }
  std::int64_t integer() const;  ///< value of an integer or a boolean
  double number() const;         ///< value of a number
  Variant const& variant() const { return value_; }

 private:
  template <class T>
  T const* held() const {
    auto const* pointer = get<std::shared_ptr<T const>>();
    return pointer ? pointer->get() : nullptr;
  }
  Variant value_;
};

struct Text {
  std::string bytes;  ///< UTF-8
  bool safe = false;  ///< made by the filter `safe`
};

struct List {
  enum class Shape {
    list,
    tuple,
    generator  ///< is true even if it is empty, has no length, and can be read once
  };
  std::vector<Value> items;
  Shape shape = Shape::list;
  int depth = 1;  ///< levels of lists and dicts
  mutable bool read = false;
};

using Pairs = std::vector<std::pair<Value, Value>>;
struct Dict {
  Pairs members;  ///< in the order of insertion
  int depth = 1;

  Value const* find(std::string_view key) const;
  /// Counts the search.
  Value const* find(std::string_view key, Budget& budget) const {
    budget.step(8 * members.size());
    return find(key);
  }
};

/// The variable `loop` of a for statement.
struct Loop {
  std::shared_ptr<List const> items;
  std::size_t index = 0;
};

/// Values by name: variables, members of a namespace, arguments by keyword. The names are text of
/// the template.
using Variables = std::vector<std::pair<std::string_view, Value>>;
/// Null if there is none.
Value const* find_variable(Variables const& variables, std::string_view name);
void set_variable(Variables& variables, std::string_view name, Value value);

struct Namespace {
  Variables members;
};

/// Text of a template, which no budget counts.
Value make_constant(std::string bytes);
/// @param why for the message where the value is used as if it were defined
Value make_undefined(Budget& budget, std::string why);
Value make_text(Budget& budget, std::string bytes, bool safe = false);
Value make_list(Budget& budget, std::vector<Value> items, List::Shape shape = List::Shape::list);
/// Keeps the last value of keys that are equal. @throws TemplateError for keys that are not text
Value make_dict(Budget& budget, Pairs const& pairs);
/// JSON as Python's json.loads reads it.
Value make_value(Budget& budget, ConfigTree const& tree);

bool truth(Value const& value);
bool equal(Value const& a, Value const& b, Budget& budget);
/// Less than zero, zero or more, as a is less than, equal to or greater than b.
/// @throws TemplateError for other kinds than numbers and text
int compare(Value const& a, Value const& b, Budget& budget);
/// "str", "int", "dict", ... as Python names types.
std::string_view type_name(Value const& value);

/// The parameters of Python's json.dumps.
struct JsonStyle {
  bool ascii = false, sorted = false, lines = false;
  std::size_t indent = 0;
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(Value const& value, JsonStyle const& style, Budget& budget);
/// repr() and str() of Python.
std::string to_repr(Value const& value, Budget& budget);
std::string to_text(Value const& value, Budget& budget);

/// The elements that a for statement visits. @throws TemplateError for values without any.
std::vector<Value> elements(Value const& value, Budget& budget);
/// len() of Python, or -1 for values without a length.
std::int64_t length(Value const& value, Budget& budget);

std::vector<std::string_view> characters(std::string_view text);
/// Text without white space, as Python's str.isspace() knows it, or without @p removed characters.
std::string_view stripped(std::string_view text, bool left, bool right,
                          std::string_view removed = {});

}  // namespace tessera::data::detail
