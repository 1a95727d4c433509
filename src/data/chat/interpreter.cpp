#include "chat/interpreter.hpp"

#include <algorithm>
#include <limits>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

constexpr int deepest_call = 600;
constexpr std::size_t max_namespaces = 100'000;

using Kind = Node::Kind;

/// A member of the variable `loop`.
Value loop_member(Loop const& loop, std::string_view name, Budget& budget) {
  auto const& items = loop.items->items;
  auto const size = static_cast<std::int64_t>(items.size());
  auto const index = static_cast<std::int64_t>(loop.index);
  auto const neighbor = [&](std::int64_t i) {
    return i >= 0 && i < size
               ? items[static_cast<std::size_t>(i)]
               : make_undefined(budget, concat("the loop has no ", name, " at this item"));
  };
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "previtem") return neighbor(index - 1);
  if (name == "nextitem") return neighbor(index + 1);
  fail(concat("loop.", name, " is not supported"));
}

/// Fails where a value is used as if it were defined.
void require_defined(Value const& value) {
  if (auto const* missing = value.get<Undefined>())
    fail(missing->why ? missing->why->bytes : std::string("a value is undefined"));
}

/// value.name: a method first, then a member.
Value attribute_of(Value const& value, std::string_view name, Budget& budget) {
  require_defined(value);
  budget.step();
  if (auto const* method = find_method(value, name)) return Value(method);
  if (auto const* dict = value.dict())
    if (auto const* found = dict->find(name, budget)) return *found;
  if (auto const* space = value.get<Namespace*>()) {
    if (name.starts_with('_')) fail("a member of a namespace that begins with _ cannot be read");
    budget.step((*space)->members.size());
    if (auto const* found = find_variable((*space)->members, name)) return *found;
  }
  if (auto const* loop = value.loop()) return loop_member(*loop, name, budget);
  return make_undefined(budget, concat("a ", type_name(value), " has no member '", name, "'"));
}

[[noreturn]] void no_operation(std::string_view name, Value const& a, Value const& b) {
  require_defined(a);
  require_defined(b);
  fail(concat("'", name, "' is not supported between ", type_name(a), " and ", type_name(b)));
}

Value integers(std::string_view name, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool wraps = false;
  if (name == "+") wraps = __builtin_add_overflow(a, b, &out);
  if (name == "-") wraps = __builtin_sub_overflow(a, b, &out);
  if (name == "*") wraps = __builtin_mul_overflow(a, b, &out);
  if (name == "//" || name == "%") {
    if (b == 0) fail("a number is divided by zero");
    wraps = b == -1 && a == std::numeric_limits<std::int64_t>::min();
    if (!wraps) {
      std::int64_t const rest = a % b, rounds = rest != 0 && (rest < 0) != (b < 0);
      out = name == "%" ? rest + rounds * b : a / b - rounds;
    }
  }
  if (wraps) fail("a number is beyond 64 bits");
  return Value(out);
}

/// `a name b` for + - * // % on integers, and + on text and lists.
Value arithmetic(std::string_view name, Value const& a, Value const& b, Budget& budget) {
  if (a.is_integral() && b.is_integral()) return integers(name, a.integer(), b.integer());
  if (name != "+") no_operation(name, a, b);
  if (auto const* x = a.text(), *y = b.text(); x && y) {
    for (auto const* each : {x, y})
      if (x->safe != y->safe && !each->safe &&
          each->bytes.find_first_of("&<>'\"") != std::string::npos)
        fail("text of the filter `safe` escapes HTML in text added by +; use ~");
    return make_text(budget, x->bytes + y->bytes, x->safe || y->safe);
  }
  auto const *x = a.sequence(), *y = b.sequence();
  if (!x || !y || x->shape != y->shape) no_operation(name, a, b);
  std::vector<Value> items = x->items;
  items.insert(items.end(), y->items.begin(), y->items.end());
  return make_list(budget, std::move(items), x->shape);
}

}  // namespace

bool contains(Value const& container, Value const& item, Budget& budget) {
  if (auto const* text = container.text()) {
    if (!item.text()) no_operation("in", item, container);
    budget.step(text->bytes.size());
    return text->bytes.find(item.text()->bytes) != std::string::npos;
  }
  if (!container.list() && !container.dict() && !container.is_undefined())
    no_operation("in", item, container);
  return std::ranges::any_of(elements(container, budget),
                             [&](Value const& each) { return equal(each, item, budget); });
}

Value item_of(Value const& container, Value const& key, Budget& budget) {
  require_defined(container);
  if (auto const* dict = container.dict(); dict && key.text())
    if (auto const* found = dict->find(key.text()->bytes, budget)) return *found;
  if (key.text()) return attribute_of(container, key.text()->bytes, budget);
  if ((container.text() || container.sequence()) && key.is_integral()) {
    std::int64_t const size = length(container, budget);
    std::int64_t const index = key.integer() + (key.integer() < 0 ? size : 0);
    if (index >= 0 && index < size) {
      auto const i = static_cast<std::size_t>(index);
      return container.list()
                 ? container.list()->items[i]
                 : make_text(budget, std::string(characters(container.text()->bytes)[i]));
    }
  }
  return make_undefined(
      budget, concat("a ", type_name(container), " has no element ", to_repr(key, budget)));
}

/// Namespaces may refer to each other: each is emptied before any ends.
Interpreter::~Interpreter() {
  for (auto& each : namespaces_) each.members.clear();
  budget_.give(output_.size());
}

void Interpreter::write(std::string_view text) {
  budget_.step(text.size());
  budget_.take(text.size());
  target_->append(text);
}

Value Interpreter::lookup(std::string_view name) {
  for (Scope const* scope = scope_.get(); scope; scope = scope->parent.get()) {
    budget_.step();
    if (auto const* found = find_variable(scope->variables, name)) return *found;
  }
  if (auto const* function = find_builtin(Builtin::Kind::function, name)) return Value(function);
  return make_undefined(budget_, concat("'", name, "' is undefined"));
}

void Interpreter::assign(Node const& target, Value value) {
  if (target.kind == Kind::name) return set(target.text, std::move(value));
  if (target.kind == Kind::attribute) return assign_member(target, std::move(value));
  std::vector<Value> const items = elements(value, budget_);
  if (items.size() != target.children.size())
    fail(concat(items.size(), " values cannot be assigned to ", target.children.size(), " names"));
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.children[i], items[i]);
}

void Interpreter::assign_member(Node const& target, Value value) {
  std::string const& name = target.children[0].text;
  Value const holder = lookup(name);
  auto const* space = holder.get<Namespace*>();
  if (!space) fail(concat("'", name, "' is no namespace, so its members cannot be set"));
  auto& members = (*space)->members;
  budget_.step(members.size());
  if (!find_variable(members, target.text)) budget_.take(sizeof(members[0]));
  set_variable(members, target.text, std::move(value));
}

Value Interpreter::make_namespace(Arguments const& arguments) {
  if (namespaces_.size() >= max_namespaces) fail("the template makes too many namespaces");
  if (!arguments.positional.empty()) fail("namespace() takes keywords only");
  namespaces_.push_back({arguments.keywords});
  auto& made = namespaces_.back();
  budget_.take(sizeof made + made.members.size() * sizeof(made.members[0]));
  return Value(&made);
}

std::string Interpreter::captured(Node const& body) {
  std::string text;
  auto* const outer_target = std::exchange(target_, &text);
  auto const outer = std::exchange(scope_, inner_scope());
  run(body);
  scope_ = outer;
  target_ = outer_target;
  budget_.give(text.size());
  return text;
}

Level Interpreter::enter(Node const& node) {
  if (depth_ == deepest_call) fail("calls of macros are nested too deep");
  budget_.step();
  position_.line = node.line;
  return Level(depth_);
}

Interpreter::Flow Interpreter::run(Node const& node) {
  if (node.kind == Kind::body) {
    for (auto const& statement : node.children)
      if (Flow const flow = run(statement); flow != Flow::next) return flow;
    return Flow::next;
  }
  Level const level = enter(node);
  auto const& children = node.children;
  switch (node.kind) {
    case Kind::data:
      write(node.text);
      break;
    case Kind::output:
      write(to_text(evaluate(children[0]), budget_));
      break;
    case Kind::loop:
      return run_loop(node);
    case Kind::condition:
      for (std::size_t i = 0; i + 1 < children.size(); i += 2)
        if (truth(evaluate(children[i]))) return run(children[i + 1]);
      if (children.size() % 2 == 1) return run(children.back());
      break;
    case Kind::assignment:
      assign(children[0], evaluate(children[1]));
      break;
    case Kind::macro:
      budget_.take(sizeof(Macro));
      macros_.push_back({&node, scope_});
      set(node.text, Value(static_cast<Macro const*>(&macros_.back())));
      break;
    case Kind::generation: {
      // Like transformers, counts from the end of what the template itself has written, even where
      // a macro around the block has not returned its text yet.
      std::string const text = captured(children[0]);
      generation_.push_back({output_.size(), output_.size() + text.size()});
      write(text);
      break;
    }
    case Kind::break_loop:
      return Flow::leave;
    case Kind::continue_loop:
      return Flow::repeat;
    default:  // an `else` that is left out
      break;
  }
  return Flow::next;
}

/// The items for which the condition of the for statement holds.
std::vector<Value> Interpreter::filtered(Node const& loop, std::vector<Value> items) {
  auto const outer = scope_;
  std::vector<Value> out;
  for (auto& item : items) {
    scope_ = inner_scope();
    assign(loop.children[0], item);
    if (truth(evaluate(loop.children[2]))) out.push_back(std::move(item));
    scope_ = outer;
  }
  return out;
}

Interpreter::Flow Interpreter::run_loop(Node const& node) {
  std::vector<Value> items = elements(evaluate(node.children[1]), budget_);
  if (node.children[2].kind != Kind::missing) items = filtered(node, std::move(items));
  auto const outer = scope_;
  Flow flow = Flow::next;
  if (items.empty()) {
    scope_ = inner_scope();
    flow = run(node.children[4]);
    scope_ = outer;
    return flow;
  }
  Value const list = make_list(budget_, std::move(items));
  auto const all = *list.get<std::shared_ptr<List const>>();
  for (std::size_t i = 0; i < all->items.size() && flow != Flow::leave; ++i) {
    budget_.step();
    position_.items.push_back(all->items[i].dict());
    scope_ = inner_scope();
    assign(node.children[0], all->items[i]);
    set("loop", Value(std::make_shared<Loop const>(Loop{all, i})));
    flow = run(node.children[3]);
    scope_ = outer;
    position_.items.pop_back();
  }
  return Flow::next;
}

// Expressions

Value Interpreter::evaluate(Node const& node) {
  Level const level = enter(node);
  auto const& children = node.children;
  switch (node.kind) {
    case Kind::constant:
      return node.value;
    case Kind::name:
      return lookup(node.text);
    case Kind::attribute:
      return attribute_of(evaluate(children[0]), node.text, budget_);
    case Kind::item: {
      Value const container = evaluate(children[0]);
      return item_of(container, evaluate(children[1]), budget_);
    }
    case Kind::slice:
      return slice(node);
    case Kind::call:
      return call(node);
    case Kind::apply: {
      Value const input = evaluate(children[0]);
      return call(*node.builtin, input, arguments_of(node));
    }
    case Kind::unary: {
      Value const value = evaluate(children[0]);
      if (node.text == "not") return Value(!truth(value));
      return arithmetic(node.text, Value(std::int64_t{0}), value, budget_);
    }
    case Kind::binary:
      return binary(node);
    case Kind::conditional:
      return evaluate(truth(evaluate(children[0])) ? children[1] : children[2]);
    case Kind::list:
    case Kind::tuple: {
      std::vector<Value> items;
      for (auto const& child : children) items.push_back(evaluate(child));
      auto const shape = node.kind == Kind::list ? List::Shape::list : List::Shape::tuple;
      return make_list(budget_, std::move(items), shape);
    }
    case Kind::dict: {
      Pairs pairs;
      for (std::size_t i = 0; i + 1 < children.size(); i += 2) {
        Value key = evaluate(children[i]);
        pairs.emplace_back(std::move(key), evaluate(children[i + 1]));
      }
      return make_dict(budget_, pairs);
    }
    case Kind::body:
      return make_text(budget_, captured(node));
    default:  // the `else` of a conditional that is left out
      return {};
  }
}

Value Interpreter::binary(Node const& node) {
  std::string const& name = node.text;
  Value left = evaluate(node.children[0]);
  if (name == "and" || name == "or")
    return truth(left) == (name == "and") ? evaluate(node.children[1]) : left;
  Value const right = evaluate(node.children[1]);
  if (name == "==" || name == "!=") return Value(equal(left, right, budget_) == (name == "=="));
  if (name == "in" || name == "not in")
    return Value(contains(right, left, budget_) == (name == "in"));
  if (name == "<") return Value(compare(left, right, budget_) < 0);
  if (name == "<=") return Value(compare(left, right, budget_) <= 0);
  if (name == ">") return Value(compare(left, right, budget_) > 0);
  if (name == ">=") return Value(compare(left, right, budget_) >= 0);
  if (name != "~") return arithmetic(name, left, right, budget_);
  return make_text(budget_, to_text(left, budget_) + to_text(right, budget_));
}

Value Interpreter::slice(Node const& node) {
  Value const value = evaluate(node.children[0]);
  if (!value.text() && !value.sequence()) fail(concat("a ", type_name(value), " cannot be sliced"));
  auto const bound = [&](std::size_t i) -> std::optional<std::int64_t> {
    Value const given = evaluate(node.children[i]);
    if (node.children[i].kind == Kind::missing || given.is_none()) return {};
    if (!given.is_integral()) fail(concat("a ", type_name(given), " cannot bound a slice"));
    return given.integer();
  };
  auto const begin = bound(1), end = bound(2);
  std::int64_t const step = bound(3).value_or(1), size = length(value, budget_);
  if (step == 0) fail("the step of a slice is zero");
  std::int64_t const lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  auto const index = [&](std::optional<std::int64_t> given, std::int64_t standard) {
    if (!given) return standard;
    return std::clamp(*given < 0 ? *given + size : *given, lowest, highest);
  };
  std::int64_t const stop = index(end, step > 0 ? highest : lowest);
  std::vector<Value> const all = elements(value, budget_);
  std::vector<Value> chosen;
  for (std::int64_t i = index(begin, step > 0 ? lowest : highest);
       step > 0 ? i < stop : i > stop;) {
    chosen.push_back(all[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (value.list()) return make_list(budget_, std::move(chosen), value.list()->shape);
  std::string text;
  for (auto const& character : chosen) text += character.text()->bytes;
  return make_text(budget_, std::move(text));
}

Arguments Interpreter::arguments_of(Node const& node) {
  Arguments out;
  for (auto const& child : std::span(node.children).subspan(1)) {
    if (child.kind == Kind::keyword)
      out.keywords.emplace_back(child.text, evaluate(child.children[0]));
    else
      out.positional.push_back(evaluate(child));
  }
  return out;
}

Value Interpreter::call(Node const& node) {
  Node const& callee = node.children[0];
  bool const has_object = callee.kind == Kind::attribute;
  Value const self = has_object ? evaluate(callee.children[0]) : Value();
  Value const function = has_object ? attribute_of(self, callee.text, budget_) : evaluate(callee);
  Arguments const arguments = arguments_of(node);
  position_.line = node.line;
  if (auto const* builtin = function.get<Builtin const*>()) {
    auto const* called = *builtin;
    if (called->kind != Builtin::Kind::function && find_method(self, called->name) != called)
      fail(concat("the method '", called->name, "' is called without its object"));
    return call(*called, self, arguments);
  }
  if (auto const* macro = function.get<Macro const*>()) return call(**macro, arguments);
  if (function.is_undefined() && self.text())
    fail(unknown(Builtin::Kind::text_method, callee.text));
  if (function.is_undefined() && self.dict())
    fail(unknown(Builtin::Kind::dict_method, callee.text));
  require_defined(function);
  fail(concat("a value of type ", type_name(function), " cannot be called"));
}

Value Interpreter::apply(Builtin::Kind kind, std::string_view name, Value const& input,
                         Arguments const& arguments) {
  auto const* builtin = find_builtin(kind, name);
  if (!builtin) fail(unknown(kind, name));
  return call(*builtin, input, arguments);
}

Value Interpreter::call(Builtin const& builtin, Value const& self, Arguments const& arguments) {
  Call out{*this, self, arguments};
  if (builtin.required != Builtin::any) {
    auto const& names = builtin.parameters;
    auto const end = std::ranges::find(names, std::string_view());
    out.given = by_parameter(builtin.name, {names.begin(), end}, arguments);
    for (std::size_t i = 0; i < static_cast<std::size_t>(builtin.required); ++i)
      if (!out.given[i]) fail(concat(builtin.name, " needs the argument '", names[i], "'"));
  }
  return builtin.apply(out);
}

Value Interpreter::call(Macro const& macro, Arguments const& arguments) {
  Node const& definition = *macro.definition;
  std::shared_ptr<Scope> const outer = macro.scope.lock();
  if (!outer) fail("a macro is called after the loop or block in which it is defined");
  auto const parameters = std::span(definition.children).first(definition.children.size() - 1);
  std::vector<std::string_view> names;
  for (auto const& parameter : parameters) names.push_back(parameter.text);
  auto const given = by_parameter(definition.text, names, arguments);
  auto const caller = std::exchange(scope_, std::make_shared<Scope>(Scope{{}, outer}));
  for (std::size_t i = 0; i < names.size(); ++i) {
    Node const& standard = parameters[i].children[0];
    if (given[i])
      set(names[i], *given[i]);
    else if (standard.kind != Kind::missing)
      set(names[i], evaluate(standard));
    else
      set(names[i], make_undefined(budget_, concat("parameter '", names[i], "' was not provided")));
  }
  std::string text = captured(definition.children.back());
  scope_ = caller;
  return make_text(budget_, std::move(text));
}

}  // namespace tessera::data::detail
