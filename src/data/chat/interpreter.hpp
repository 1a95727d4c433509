#pragma once
/// Runs the syntax tree of a template.

#include <ctime>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/syntax.hpp"
#include "chat/value.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::data::detail {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keywords;
};

/// Names and their values inside a template, a loop, a macro or a block.
struct Scope {
  std::vector<std::pair<std::string_view, Value>> variables;
  std::shared_ptr<Scope> parent;
};

struct Macro {
  Statement const* definition;
  std::weak_ptr<Scope> scope;  ///< where it is defined
};

/// Where a rendering is, for messages.
struct Position {
  int line = 1;
  std::vector<Dict const*> items;  ///< items of the running loops, the innermost last
};

/// One rendering. Values may not outlive it.
class Interpreter {
 public:
  Interpreter(Budget& budget, std::optional<std::time_t> time) : budget_(budget), time_(time) {}
  Interpreter(Interpreter const&) = delete;
  Interpreter& operator=(Interpreter const&) = delete;
  ~Interpreter();

  void define(std::string_view name, Value value);
  /// @throws TemplateError; position() says where
  void run(Syntax const& syntax);

  std::string const& output() const { return output_; }
  std::vector<TextSpan> const& generation() const { return generation_; }
  Position const& position() const { return position_; }

  // for the functions of builtins.cpp
  Budget& budget() { return budget_; }
  std::optional<std::time_t> time() const { return time_; }
  Value make_namespace(Arguments const& arguments);

 private:
  enum class Flow { next, leave, repeat };
  struct Buffer;
  class Depth;

  Flow run(Body const& body);
  Flow run(Statement const& statement);
  Flow run_loop(Statement const& statement);
  Flow run_items(Statement const& statement, std::shared_ptr<List const> const& items);
  std::vector<Value> filtered(Statement const& statement, std::vector<Value> items);
  /// What a body writes, in a scope of its own.
  std::string captured(Body const& body, std::shared_ptr<Scope> scope);
  std::string captured(Body const& body);
  void write(std::string_view text);
  void set(std::string_view name, Value value);
  void assign(Expression const& target, Value value);
  Value lookup(std::string_view name);
  Value make_macro(Statement const& statement);
  Value call_macro(Macro const& macro, Arguments const& arguments, Macro const* caller);
  Value apply_filters(Expression const& filters, std::string text);

  Value evaluate(Expression const& expression);
  std::vector<Value> evaluate_all(std::span<ExpressionPtr const> operands);
  Arguments arguments_of(Expression const& expression);
  Value compared(Expression const& expression);
  Value call(Expression const& expression, Macro const* caller = nullptr);
  Value slice(Expression const& expression);
  Value filter(Expression const& expression, Value const& input);

  Budget& budget_;
  std::optional<std::time_t> time_;
  std::string output_;
  std::string* target_ = &output_;  ///< where text is written
  std::vector<TextSpan> generation_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::deque<Namespace> namespaces_;
  std::deque<Macro> macros_;
  Position position_;
  int depth_ = 0;
};

// operators.cpp

/// `a name b` for arithmetic.
Value arithmetic(std::string_view name, Value const& a, Value const& b, Budget& budget);
Value negated(Value const& value);
bool contains(Value const& container, Value const& item, Budget& budget);
/// Returns container[key], or an undefined value without such an element.
Value item_of(Value const& container, Value const& key, Budget& budget);
/// value.name: a method first, then a member.
Value attribute_of(Value const& value, std::string_view name, Budget& budget);
/// Bounds that are left out are null.
Value slice_of(Value const& value, Value const* begin, Value const* end, Value const* step,
               Budget& budget);

// builtins.cpp: each @throws TemplateError for unknown names and wrong arguments

Value apply_filter(Interpreter& interpreter, std::string_view name, Value const& input,
                   Arguments const& arguments);
bool apply_test(Interpreter& interpreter, std::string_view name, Value const& input,
                Arguments const& arguments);
bool has_method(Value const& value, std::string_view name);
Value call_method(Interpreter& interpreter, Value const& value, std::string_view name,
                  Arguments const& arguments);
bool has_function(std::string_view name);
Value call_function(Interpreter& interpreter, std::string_view name, Arguments const& arguments);
/// @throws TemplateError for a filter or a test that does not exist, before a template runs.
void require_names(Body const& body);

}  // namespace tessera::data::detail
