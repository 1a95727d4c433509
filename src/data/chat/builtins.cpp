#include "chat/builtins.hpp"

#include <algorithm>
#include <ctime>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {

std::string Call::text(std::size_t i, std::string_view standard) const {
  Value const* given = at(i);
  if (!given) return std::string(standard);
  if (!given->text()) fail(concat("an argument is a ", type_name(*given), "; text is expected"));
  return given->text()->bytes;
}

std::int64_t Call::integer(std::size_t i, std::int64_t standard) const {
  Value const* given = at(i);
  if (!given) return standard;
  if (!given->is_integral())
    fail(concat("an argument is a ", type_name(*given), "; an integer is expected"));
  return given->integer();
}

Builtin const* find_builtin(std::span<Builtin const> all, std::string_view name) {
  auto const found = std::ranges::find(all, name, &Builtin::name);
  return found == all.end() ? nullptr : &*found;
}

Value call_builtin(Interpreter& interpreter, Builtin const& builtin, Value const& self,
                   Arguments const& arguments) {
  Call call{interpreter, self, arguments, {}};
  std::string_view names = builtin.parameters;
  if (names == "*") return builtin.apply(call);
  bool const required = names.starts_with('!');
  if (required) names.remove_prefix(1);
  std::size_t keywords = 0;
  while (!names.empty()) {
    std::size_t const end = std::min(names.find(','), names.size());
    std::string_view const name = names.substr(0, end);
    auto const keyword =
        std::ranges::find(arguments.keywords, name, &std::pair<std::string_view, Value>::first);
    std::size_t const i = call.given.size();
    bool const named = keyword != arguments.keywords.end();
    bool const placed = i < arguments.positional.size();
    if (named && placed) fail(concat(builtin.name, " gets '", name, "' twice"));
    keywords += named;
    call.given.push_back(placed ? &arguments.positional[i] : named ? &keyword->second : nullptr);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  if (arguments.positional.size() > call.given.size() || keywords < arguments.keywords.size())
    fail(concat(builtin.name, " takes ", builtin.parameters.empty() ? "no arguments" : "only ",
                builtin.parameters.substr(required)));
  if (required && !call.given[0]) fail(concat(builtin.name, " needs an argument"));
  return builtin.apply(call);
}

namespace {

// Tests

template <class Holds>
constexpr auto test(Holds) {
  return [](Call const& call) { return Value(bool{Holds{}(call)}); };
}
bool is_true(Value const& v) { return v.is<bool>() && *v.get<bool>(); }
bool is_int(Value const& v) { return v.is<std::int64_t>(); }

/// Whether both are one object; for scalars whether they are equal.
bool same(Value const& a, Value const& b) {
  if (auto const* x = a.get<bool>()) return b.is<bool>() && *x == *b.get<bool>();
  if (auto const* x = a.get<std::int64_t>()) return is_int(b) && *x == *b.get<std::int64_t>();
  if (auto const* x = a.list()) return x == b.list();
  if (auto const* x = a.dict()) return x == b.dict();
  if (a.is_none()) return b.is_none();
  fail(concat("sameas is not supported for a ", type_name(a)));
}

bool ordered(Call const& call, std::string_view name) {
  int const order = compare(call.self, *call.at(0), call.budget());
  if (name == "<") return order < 0;
  if (name == "<=") return order <= 0;
  return name == ">" ? order > 0 : order >= 0;
}

bool divisible(Value const& value, std::int64_t by) {
  if (!value.is_integral()) fail(concat("a ", type_name(value), " is not an integer"));
  if (by == 0) fail("a number is divided by zero");
  return by == -1 || value.integer() % by == 0;
}

bool has_case(Call const& call, bool upper) {
  std::string const text = to_text(call.self, call.budget());
  std::string const up = in_upper_case(text), low = in_lower_case(text);
  return up != low && text == (upper ? up : low);
}

constexpr auto equals = test([](Call const& c) { return equal(c.self, *c.at(0), c.budget()); });
constexpr auto differs = test([](Call const& c) { return !equal(c.self, *c.at(0), c.budget()); });
constexpr auto less = test([](Call const& c) { return ordered(c, "<"); });
constexpr auto at_most = test([](Call const& c) { return ordered(c, "<="); });
constexpr auto greater = test([](Call const& c) { return ordered(c, ">"); });
constexpr auto at_least = test([](Call const& c) { return ordered(c, ">="); });

constexpr Builtin tests[] = {
    {"defined", "", test([](Call const& c) { return !c.self.is_undefined(); })},
    {"undefined", "", test([](Call const& c) { return c.self.is_undefined(); })},
    {"none", "", test([](Call const& c) { return c.self.is_none(); })},
    {"boolean", "", test([](Call const& c) { return c.self.is<bool>(); })},
    {"true", "", test([](Call const& c) { return is_true(c.self); })},
    {"false", "", test([](Call const& c) { return c.self.is<bool>() && !is_true(c.self); })},
    {"integer", "", test([](Call const& c) { return is_int(c.self); })},
    {"float", "", test([](Call const& c) { return c.self.is<double>(); })},
    {"number", "", test([](Call const& c) { return c.self.is_number(); })},
    {"string", "", test([](Call const& c) { return c.self.text() != nullptr; })},
    {"mapping", "", test([](Call const& c) { return c.self.dict() != nullptr; })},
    {"iterable", "", test([](Call const& c) {
       bool const loop = c.self.is<std::shared_ptr<Loop const>>();
       return loop || c.self.is_undefined() || c.self.text() || c.self.list() || c.self.dict();
     })},
    {"sequence", "", test([](Call const& c) {
       bool const generator = c.self.list() && c.self.list()->shape == List::Shape::generator;
       return !generator &&
              (c.self.is_undefined() || c.self.text() || c.self.list() || c.self.dict());
     })},
    {"callable", "", test([](Call const& c) {
       return c.self.is_undefined() || c.self.is<Macro const*>() || c.self.is<Function>();
     })},
    {"sameas", "!other", test([](Call const& c) { return same(c.self, *c.at(0)); })},
    {"in", "!seq", test([](Call const& c) { return contains(*c.at(0), c.self, c.budget()); })},
    {"odd", "", test([](Call const& c) { return !divisible(c.self, 2); })},
    {"even", "", test([](Call const& c) { return divisible(c.self, 2); })},
    {"divisibleby", "!num", test([](Call const& c) { return divisible(c.self, c.integer(0, 1)); })},
    {"upper", "", test([](Call const& c) { return has_case(c, true); })},
    {"lower", "", test([](Call const& c) { return has_case(c, false); })},
    {"eq", "!b", equals},
    {"equalto", "!b", equals},
    {"==", "!b", equals},
    {"ne", "!b", differs},
    {"!=", "!b", differs},
    {"lt", "!b", less},
    {"lessthan", "!b", less},
    {"<", "!b", less},
    {"le", "!b", at_most},
    {"<=", "!b", at_most},
    {"gt", "!b", greater},
    {"greaterthan", "!b", greater},
    {">", "!b", greater},
    {"ge", "!b", at_least},
    {">=", "!b", at_least}};

// Methods of dicts and lists

enum class Part { keys, values, items };
Value parts(Call const& call, Part part) {
  std::vector<Value> out;
  for (auto const& [key, value] : call.self.dict()->members)
    out.push_back(part == Part::keys ? key
                  : part == Part::values
                      ? value
                      : make_list(call.budget(), {key, value}, List::Shape::tuple));
  return make_list(call.budget(), std::move(out));
}

constexpr Builtin dict_methods[] = {
    {"get", "!key,default",
     [](Call const& c) {
       auto const* found = c.self.dict()->find(*c.at(0), c.budget());
       return found ? *found : c.at(1) ? *c.at(1) : Value::none();
     }},
    {"keys", "", [](Call const& c) { return parts(c, Part::keys); }},
    {"values", "", [](Call const& c) { return parts(c, Part::values); }},
    {"items", "", [](Call const& c) { return parts(c, Part::items); }},
    {"copy", "", [](Call const& c) { return c.self; }}};

constexpr Builtin list_methods[] = {{"index", "!value",
                                     [](Call const& c) {
                                       auto const& items = c.self.list()->items;
                                       for (std::size_t i = 0; i < items.size(); ++i)
                                         if (equal(items[i], *c.at(0), c.budget()))
                                           return Value(static_cast<std::int64_t>(i));
                                       fail("index: the value is not in the list");
                                     }},
                                    {"count", "!value",
                                     [](Call const& c) {
                                       std::int64_t out = 0;
                                       for (auto const& item : c.self.list()->items)
                                         out += equal(item, *c.at(0), c.budget());
                                       return Value(out);
                                     }},
                                    {"copy", "", [](Call const& c) { return c.self; }}};

constexpr Builtin loop_methods[] = {{"cycle", "*", [](Call const& c) {
                                       auto const& given = c.arguments.positional;
                                       if (given.empty()) fail("cycle needs values");
                                       auto const& loop =
                                           **c.self.get<std::shared_ptr<Loop const>>();
                                       return given[loop.index % given.size()];
                                     }}};

std::span<Builtin const> methods_of(Value const& value) {
  if (value.text()) return text_methods();
  if (value.dict()) return dict_methods;
  if (value.is<std::shared_ptr<Loop const>>()) return loop_methods;
  if (auto const* list = value.list(); list && list->shape != List::Shape::generator)
    return list_methods;
  return {};
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
  return make_list(call.budget(), std::move(out));
}

Value dict(Call const& call) {
  std::vector<Value> members;
  for (auto const& value : call.arguments.positional) {
    auto const* from = value.dict();
    if (!from) fail("dict() takes a dict and keywords");
    for (auto const& [key, member] : from->members) members.insert(members.end(), {key, member});
  }
  for (auto const& [name, value] : call.arguments.keywords)
    members.insert(members.end(), {call.make(std::string(name)), value});
  return make_dict_of(call.budget(), members);
}

Value time_text(Call const& call) {
  std::time_t const now = call.interpreter.time().value_or(std::time(nullptr));
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::string const& format = call.text(0, "");
  if (format.size() > 256) fail("strftime_now: the format is longer than 256 bytes");
  char buffer[4096];
  return call.make({buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &parts)});
}

constexpr Builtin functions[] = {
    {"namespace", "*", [](Call const& c) { return c.interpreter.make_namespace(c.arguments); }},
    {"range", "!start,stop,step", range},
    {"dict", "*", dict},
    {"raise_exception", "!message",
     [](Call const& c) -> Value {
       fail("the template refuses the conversation: " + to_text(*c.at(0), c.budget()));
     }},
    {"strftime_now", "!format", time_text}};

Builtin const& required(std::span<Builtin const> all, std::string_view kind,
                        std::string_view name) {
  auto const* found = find_builtin(all, name);
  if (found) return *found;
  std::string known;
  for (auto const& each : all) known += concat(known.empty() ? "" : ", ", each.name);
  fail(concat("the ", kind, " '", name, "' is not supported; known are ", known));
}

// Names before a template runs

void require_names(Expression const& expression) {
  if (expression.kind == Expression::Kind::filter) required(filters(), "filter", expression.name);
  if (expression.kind == Expression::Kind::test) required(tests, "test", expression.name);
  for (auto const& operand : expression.operands)
    if (operand) require_names(*operand);
  for (auto const& [name, value] : expression.keywords) require_names(*value);
}

}  // namespace

void require_names(Body const& body) {
  for (auto const& statement : body) {
    for (auto const* each : {&statement.target, &statement.value, &statement.test})
      if (*each) require_names(**each);
    for (auto const& [test, branch] : statement.branches) {
      require_names(*test);
      require_names(branch);
    }
    for (auto const& parameter : statement.parameters)
      if (parameter.standard) require_names(*parameter.standard);
    require_names(statement.body);
    require_names(statement.otherwise);
  }
}

Value apply_filter(Interpreter& interpreter, std::string_view name, Value const& input,
                   Arguments const& arguments) {
  return call_builtin(interpreter, required(filters(), "filter", name), input, arguments);
}

bool apply_test(Interpreter& interpreter, std::string_view name, Value const& input,
                Arguments const& arguments) {
  return truth(call_builtin(interpreter, required(tests, "test", name), input, arguments));
}

bool has_method(Value const& value, std::string_view name) {
  return find_builtin(methods_of(value), name) != nullptr;
}
Value call_method(Interpreter& interpreter, Value const& value, std::string_view name,
                  Arguments const& arguments) {
  return call_builtin(interpreter, *find_builtin(methods_of(value), name), value, arguments);
}

bool has_function(std::string_view name) { return find_builtin(functions, name) != nullptr; }
Value call_function(Interpreter& interpreter, std::string_view name, Arguments const& arguments) {
  Value const none;
  return call_builtin(interpreter, *find_builtin(functions, name), none, arguments);
}

}  // namespace tessera::data::detail
