#pragma once
/// Runs the syntax tree of a template.

#include <array>
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

class Interpreter;

struct Arguments {
  std::vector<Value> positional;
  Variables keywords;
};

/// A call of a builtin with its arguments in the order of its parameters.
struct Call {
  Interpreter& interpreter;
  Value const& self;  ///< input of a filter or a test, object of a method
  Arguments const& arguments;
  std::vector<Value const*> given{};  ///< by parameter; null where left out

  Budget& budget() const;
  Value const* at(std::size_t i) const { return i < given.size() ? given[i] : nullptr; }
  /// Null also where none is given.
  Value const* optional(std::size_t i) const {
    return at(i) && !at(i)->is_none() ? at(i) : nullptr;
  }
  bool flag(std::size_t i) const { return at(i) && truth(*at(i)); }
  /// An argument that must be of a kind, or its default: "" for text. @throws TemplateError
  std::string text(std::size_t i) const;
  std::int64_t integer(std::size_t i, std::int64_t standard) const;
  Value make(std::string_view bytes) const { return make_text(budget(), std::string(bytes)); }
};

/// A filter, a test, a function or a method.
struct Builtin {
  enum class Kind { filter, test, function, text_method, dict_method };
  static constexpr int any = -1;  ///< as `required`: takes any arguments
  Kind kind;
  std::string_view name;
  int required;  ///< number of the first parameters that have no default
  std::array<std::string_view, 4> parameters;
  Value (*apply)(Call const&);
};

/// Null if there is none.
Builtin const* find_builtin(Builtin::Kind kind, std::string_view name);
Builtin const* find_method(Value const& value, std::string_view name);
/// A message that names those that are known.
std::string unknown(Builtin::Kind kind, std::string_view name);

/// The arguments by parameter; null where left out. @throws TemplateError for arguments without
/// parameter
std::vector<Value const*> by_parameter(std::string_view function,
                                       std::span<std::string_view const> parameters,
                                       Arguments const& arguments);

/// Names and their values inside a template, a loop, a macro or a block.
struct Scope {
  Variables variables;
  std::shared_ptr<Scope> parent;
};

struct Macro {
  Node const* definition;
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

  /// Sets a variable.
  void set(std::string_view name, Value value) {
    set_variable(scope_->variables, name, std::move(value));
  }
  /// @throws TemplateError; position() says where
  void run(Syntax const& syntax) { run(syntax.body); }

  std::string const& output() const { return output_; }
  std::vector<TextSpan> const& generation() const { return generation_; }
  Position const& position() const { return position_; }

  // for the functions of builtins.cpp
  Budget& budget() { return budget_; }
  std::time_t time() const { return time_.value_or(std::time(nullptr)); }
  Value make_namespace(Arguments const& arguments);
  /// @throws TemplateError for an unknown name or wrong arguments
  Value apply(Builtin::Kind kind, std::string_view name, Value const& input,
              Arguments const& arguments);

 private:
  enum class Flow { next, leave, repeat };

  /// Counts a step and a level of recursion.
  Level enter(Node const& node);
  Flow run(Node const& statement);
  Flow run_loop(Node const& loop);
  std::vector<Value> filtered(Node const& loop, std::vector<Value> items);
  /// What a body writes, in a scope of its own.
  std::string captured(Node const& body);
  void write(std::string_view text);
  void assign(Node const& target, Value value);
  void assign_member(Node const& target, Value value);
  std::shared_ptr<Scope> inner_scope() const { return std::make_shared<Scope>(Scope{{}, scope_}); }

  Value evaluate(Node const& expression);
  Value binary(Node const& expression);
  Value slice(Node const& expression);
  Value call(Node const& expression);
  Value call(Builtin const& builtin, Value const& self, Arguments const& arguments);
  Value call(Macro const& macro, Arguments const& arguments);
  Value lookup(std::string_view name);
  Arguments arguments_of(Node const& expression);

  Budget& budget_;
  std::optional<std::time_t> time_;
  std::string output_;
  std::string* target_ = &output_;  ///< where text is written; an error may leave it dangling
  std::vector<TextSpan> generation_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::deque<Namespace> namespaces_;
  std::deque<Macro> macros_;
  Position position_;
  int depth_ = 0;
};

bool contains(Value const& container, Value const& item, Budget& budget);
/// Returns container[key], or an undefined value without such an element.
Value item_of(Value const& container, Value const& key, Budget& budget);

}  // namespace tessera::data::detail
