#include "chat/interpreter.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

constexpr int max_depth = 600;
constexpr std::size_t max_namespaces = 100'000;

using Kind = Expression::Kind;

}  // namespace

/// Bounds the recursion of a rendering.
class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ > max_depth) {
      --interpreter_.depth_;
      fail("calls of macros are nested too deep");
    }
  }
  Depth(Depth const&) = delete;
  Depth& operator=(Depth const&) = delete;
  ~Depth() { --interpreter_.depth_; }

 private:
  Interpreter& interpreter_;
};

/// Collects what is written while it lives, in another scope.
struct Interpreter::Buffer {
  Buffer(Interpreter& owner, std::shared_ptr<Scope> scope)
      : interpreter(owner),
        previous(std::exchange(owner.target_, &text)),
        previous_scope(std::exchange(owner.scope_, std::move(scope))) {}
  Buffer(Buffer const&) = delete;
  Buffer& operator=(Buffer const&) = delete;
  ~Buffer() {
    interpreter.target_ = previous;
    interpreter.scope_ = std::move(previous_scope);
    interpreter.budget_.give(text.size());
  }
  std::string text;
  Interpreter& interpreter;
  std::string* previous;
  std::shared_ptr<Scope> previous_scope;
};

/// Namespaces may refer to each other: each is emptied before any ends.
Interpreter::~Interpreter() {
  for (auto& each : namespaces_) each.members.clear();
  budget_.give(output_.size());
}

void Interpreter::define(std::string_view name, Value value) { set(name, std::move(value)); }

void Interpreter::run(Syntax const& syntax) { run(syntax.body); }

void Interpreter::write(std::string_view text) {
  budget_.step(text.size());
  budget_.take(text.size());
  target_->append(text);
}

void Interpreter::set(std::string_view name, Value value) {
  auto& variables = scope_->variables;
  auto const found = std::ranges::find(variables, name, &std::pair<std::string_view, Value>::first);
  if (found != variables.end())
    found->second = std::move(value);
  else
    variables.emplace_back(name, std::move(value));
}

Value Interpreter::lookup(std::string_view name) {
  for (Scope const* scope = scope_.get(); scope; scope = scope->parent.get()) {
    budget_.step();
    for (auto const& [each, value] : scope->variables)
      if (each == name) return value;
  }
  if (has_function(name)) return Value(Function{name});
  return make_undefined(budget_, concat("'", name, "' is undefined"));
}

void Interpreter::assign(Expression const& target, Value value) {
  if (target.kind == Kind::name) return set(target.name, std::move(value));
  if (target.kind == Kind::attribute) {
    std::string const& name = target.operands[0]->name;
    Value const holder = lookup(name);
    auto const* held = holder.get<Namespace*>();
    if (!held) fail(concat("'", name, "' is no namespace, so its members cannot be set"));
    if (target.name.starts_with('_')) fail("a namespace cannot have a member that begins with _");
    auto& members = (*held)->members;
    auto const found =
        std::ranges::find(members, target.name, &std::pair<std::string, Value>::first);
    budget_.step(members.size());
    if (found != members.end()) {
      found->second = std::move(value);
      return;
    }
    budget_.take(sizeof(*found) + target.name.size());
    members.emplace_back(target.name, std::move(value));
    return;
  }
  std::vector<Value> const items = elements(value, budget_);
  if (items.size() != target.operands.size())
    fail(concat(items.size(), " values cannot be assigned to ", target.operands.size(), " names"));
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i]);
}

std::string Interpreter::captured(Body const& body, std::shared_ptr<Scope> scope) {
  Buffer buffer(*this, std::move(scope));
  run(body);
  return buffer.text;
}
std::string Interpreter::captured(Body const& body) {
  return captured(body, std::make_shared<Scope>(Scope{{}, scope_}));
}

Value Interpreter::make_namespace(Arguments const& arguments) {
  if (namespaces_.size() >= max_namespaces) fail("the template makes too many namespaces");
  Namespace made;
  auto const put = [&](std::string_view name, Value const& value) {
    if (name.starts_with('_')) fail("a namespace cannot have a member that begins with _");
    made.members.emplace_back(name, value);
  };
  for (auto const& value : arguments.positional) {
    auto const* dict = value.dict();
    if (!dict) fail("namespace() takes a dict and keywords");
    for (auto const& [key, member] : dict->members)
      if (auto const* text = key.text()) put(text->bytes, member);
  }
  for (auto const& [name, value] : arguments.keywords) put(name, value);
  budget_.take(sizeof made + made.members.size() * sizeof(made.members[0]));
  namespaces_.push_back(std::move(made));
  return Value(&namespaces_.back());
}

Value Interpreter::make_macro(Statement const& statement) {
  budget_.take(sizeof(Macro));
  macros_.push_back({&statement, scope_});
  return Value(static_cast<Macro const*>(&macros_.back()));
}

Value Interpreter::call_macro(Macro const& macro, Arguments const& arguments, Macro const* caller) {
  Statement const& definition = *macro.definition;
  std::shared_ptr<Scope> const outer = macro.scope.lock();
  if (!outer) fail("a macro is called after the loop or block in which it is defined");
  auto const& parameters = definition.parameters;
  if (arguments.positional.size() > parameters.size())
    fail(concat("macro '", definition.text, "' takes no more than ", parameters.size(),
                " arguments"));
  auto const scope = std::make_shared<Scope>(Scope{{}, outer});
  Buffer buffer(*this, scope);
  if (caller) set("caller", Value(caller));
  std::size_t keywords = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto const& [name, standard] = parameters[i];
    auto const keyword =
        std::ranges::find(arguments.keywords, name, &std::pair<std::string_view, Value>::first);
    bool const named = keyword != arguments.keywords.end();
    keywords += named;
    if (i < arguments.positional.size()) {
      if (named) fail(concat("macro '", definition.text, "' gets '", name, "' twice"));
      set(name, arguments.positional[i]);
    } else if (named) {
      set(name, keyword->second);
    } else {
      set(name, standard
                    ? evaluate(*standard)
                    : make_undefined(budget_, concat("parameter '", name, "' was not provided")));
    }
  }
  if (keywords != arguments.keywords.size())
    fail(concat("macro '", definition.text, "' has no parameter for one of the keywords"));
  run(definition.body);
  return make_text(budget_, buffer.text);
}

Value Interpreter::apply_filters(Expression const& filters, std::string text) {
  Value input = filters.operands[0] ? apply_filters(*filters.operands[0], std::move(text))
                                    : make_text(budget_, std::move(text));
  return filter(filters, input);
}

Interpreter::Flow Interpreter::run(Body const& body) {
  for (auto const& statement : body)
    if (Flow const flow = run(statement); flow != Flow::next) return flow;
  return Flow::next;
}

Interpreter::Flow Interpreter::run(Statement const& statement) {
  Depth const depth(*this);
  budget_.step();
  position_.line = statement.line;
  using S = Statement::Kind;
  switch (statement.kind) {
    case S::text:
      write(statement.text);
      break;
    case S::output:
      write(to_text(evaluate(*statement.value), budget_));
      break;
    case S::loop:
      return run_loop(statement);
    case S::condition:
      for (auto const& [test, body] : statement.branches)
        if (truth(evaluate(*test))) return run(body);
      return run(statement.otherwise);
    case S::assignment:
      assign(*statement.target, evaluate(*statement.value));
      break;
    case S::block_set: {
      std::string text = captured(statement.body);
      assign(*statement.target, statement.value ? apply_filters(*statement.value, std::move(text))
                                                : make_text(budget_, std::move(text)));
      break;
    }
    case S::macro:
      set(statement.text, make_macro(statement));
      break;
    case S::call_block: {
      Value const caller = make_macro(statement);
      write(to_text(call(*statement.value, *caller.get<Macro const*>()), budget_));
      break;
    }
    case S::filter_block:
      write(to_text(apply_filters(*statement.value, captured(statement.body)), budget_));
      break;
    case S::generation: {
      // Like transformers, counts from the end of what the template itself has written, even where
      // a macro around the block has not returned its text yet.
      std::string const text = captured(statement.body);
      generation_.push_back({output_.size(), output_.size() + text.size()});
      write(text);
      break;
    }
    case S::break_loop:
      return Flow::leave;
    case S::continue_loop:
      return Flow::repeat;
  }
  return Flow::next;
}

/// The items for which the condition of the for statement holds.
std::vector<Value> Interpreter::filtered(Statement const& statement, std::vector<Value> items) {
  std::vector<Value> out;
  for (auto& item : items) {
    Buffer const scope(*this, std::make_shared<Scope>(Scope{{}, scope_}));
    assign(*statement.target, item);
    if (truth(evaluate(*statement.test))) out.push_back(std::move(item));
  }
  return out;
}

Interpreter::Flow Interpreter::run_loop(Statement const& statement) {
  std::vector<Value> items = elements(evaluate(*statement.value), budget_);
  if (statement.test) items = filtered(statement, std::move(items));
  auto const outer = scope_;
  if (items.empty()) {
    scope_ = std::make_shared<Scope>(Scope{{}, outer});
    Flow const flow = run(statement.otherwise);
    scope_ = outer;
    return flow;
  }
  Value const held = make_list(budget_, std::move(items));
  return run_items(statement, *held.get<std::shared_ptr<List const>>());
}

Interpreter::Flow Interpreter::run_items(Statement const& statement,
                                         std::shared_ptr<List const> const& items) {
  auto const outer = scope_;
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    budget_.step();
    position_.items.push_back(items->items[i].dict());
    scope_ = std::make_shared<Scope>(Scope{{}, outer});
    assign(*statement.target, items->items[i]);
    set("loop", Value(std::make_shared<Loop const>(Loop{items, i})));
    Flow const flow = run(statement.body);
    scope_ = outer;
    position_.items.pop_back();
    if (flow == Flow::leave) break;
  }
  return Flow::next;
}

std::vector<Value> Interpreter::evaluate_all(std::span<ExpressionPtr const> operands) {
  std::vector<Value> out;
  for (auto const& operand : operands) out.push_back(evaluate(*operand));
  return out;
}

Arguments Interpreter::arguments_of(Expression const& expression) {
  Arguments out{evaluate_all(std::span(expression.operands).subspan(1)), {}};
  for (auto const& [name, value] : expression.keywords)
    out.keywords.emplace_back(name, evaluate(*value));
  return out;
}

Value Interpreter::evaluate(Expression const& expression) {
  Depth const depth(*this);
  budget_.step();
  position_.line = expression.line;
  auto const& operands = expression.operands;
  auto const operand = [&](std::size_t i) { return evaluate(*operands[i]); };
  switch (expression.kind) {
    case Kind::undefined:
      return {};
    case Kind::none:
      return Value::none();
    case Kind::boolean:
      return Value(expression.number != 0);
    case Kind::integer:
      return Value(expression.number);
    case Kind::real:
      return Value(expression.real);
    case Kind::text:
      return make_text(budget_, expression.name);
    case Kind::name:
      return lookup(expression.name);
    case Kind::attribute:
      return attribute_of(operand(0), expression.name, budget_);
    case Kind::item: {
      Value const container = operand(0);
      return item_of(container, operand(1), budget_);
    }
    case Kind::slice:
      return slice(expression);
    case Kind::call:
      return call(expression);
    case Kind::filter:
      return filter(expression, operand(0));
    case Kind::test: {
      Value const input = operand(0);
      return Value(apply_test(*this, expression.name, input, arguments_of(expression)));
    }
    case Kind::unary: {
      Value const value = operand(0);
      if (expression.name == "not") return Value(!truth(value));
      return expression.name == "-" ? negated(value) : negated(negated(value));
    }
    case Kind::binary: {
      Value const left = operand(0);
      return arithmetic(expression.name, left, operand(1), budget_);
    }
    case Kind::both: {
      Value left = operand(0);
      return truth(left) ? operand(1) : left;
    }
    case Kind::either: {
      Value left = operand(0);
      return truth(left) ? left : operand(1);
    }
    case Kind::comparison:
      return compared(expression);
    case Kind::concatenation: {
      std::string text;
      for (auto const& value : evaluate_all(operands)) text += to_text(value, budget_);
      return make_text(budget_, std::move(text));
    }
    case Kind::conditional:
      return truth(operand(0)) ? operand(1) : operand(2);
    case Kind::list:
      return make_list(budget_, evaluate_all(operands));
    case Kind::tuple:
      return make_list(budget_, evaluate_all(operands), List::Shape::tuple);
    case Kind::dict:
      return make_dict_of(budget_, evaluate_all(operands));
  }
  return {};
}

Value Interpreter::compared(Expression const& expression) {
  Value left = evaluate(*expression.operands[0]);
  for (std::size_t i = 0; i < expression.names.size(); ++i) {
    Value right = evaluate(*expression.operands[i + 1]);
    std::string const& name = expression.names[i];
    bool holds = false;
    if (name == "==" || name == "!=")
      holds = equal(left, right, budget_) == (name == "==");
    else if (name == "in" || name == "not in")
      holds = contains(right, left, budget_) == (name == "in");
    else if (int const order = compare(left, right, budget_); name[0] == '<')
      holds = name == "<" ? order < 0 : order <= 0;
    else
      holds = name == ">" ? order > 0 : order >= 0;
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::slice(Expression const& expression) {
  Value const value = evaluate(*expression.operands[0]);
  Value bounds[3];
  Value const* given[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!expression.operands[i + 1]) continue;
    bounds[i] = evaluate(*expression.operands[i + 1]);
    given[i] = &bounds[i];
  }
  return slice_of(value, given[0], given[1], given[2], budget_);
}

Value Interpreter::filter(Expression const& expression, Value const& input) {
  return apply_filter(*this, expression.name, input, arguments_of(expression));
}

Value Interpreter::call(Expression const& expression, Macro const* caller) {
  Expression const& callee = *expression.operands[0];
  Value function;
  if (callee.kind == Kind::attribute) {
    Value const object = evaluate(*callee.operands[0]);
    if (has_method(object, callee.name))
      return call_method(*this, object, callee.name, arguments_of(expression));
    function = attribute_of(object, callee.name, budget_);
  } else {
    function = evaluate(callee);
  }
  Arguments const arguments = arguments_of(expression);
  position_.line = expression.line;
  if (auto const* macro = function.get<Macro const*>())
    return call_macro(**macro, arguments, caller);
  auto const* known = function.get<Function>();
  if (known && has_function(known->name)) return call_function(*this, known->name, arguments);
  if (auto const* missing = function.get<Undefined>(); missing && missing->why)
    fail(missing->why->bytes);
  fail(concat("a value of type ", type_name(function), " cannot be called"));
}

}  // namespace tessera::data::detail
