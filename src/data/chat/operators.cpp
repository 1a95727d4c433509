#include "chat/interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

[[noreturn]] void out_of_range() { fail("a number is beyond 64 bits"); }

[[noreturn]] void no_operation(std::string_view name, Value const& a, Value const& b) {
  for (Value const* each : {&a, &b})
    if (auto const* missing = each->get<Undefined>())
      fail(missing->why ? missing->why->bytes : std::string("a value is undefined"));
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
    if (b == -1) {
      wraps = name == "//" && a == std::numeric_limits<std::int64_t>::min();
      out = name == "%" || wraps ? 0 : -a;
    } else {
      bool const rounds_up = a % b != 0 && (a % b < 0) != (b < 0);
      out = name == "%" ? a % b + (rounds_up ? b : 0) : a / b - rounds_up;
    }
  }
  if (name == "**") {
    out = 1;
    for (std::int64_t i = 0; i < b && !wraps; ++i) {
      wraps = __builtin_mul_overflow(out, a, &out);
      if (a >= -1 && a <= 1 && i > 1) i += (b - i) / 2 * 2;  // 0, 1 and -1 repeat
    }
  }
  if (wraps) out_of_range();
  return Value(out);
}

Value reals(std::string_view name, double a, double b) {
  if (name == "+") return Value(a + b);
  if (name == "-") return Value(a - b);
  if (name == "*") return Value(a * b);
  if (name == "**") return Value(std::pow(a, b));
  if (b == 0) fail("a number is divided by zero");
  if (name == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return Value(name == "%" ? rest : std::floor((a - rest) / b + 0.5));
}

Value repeated(Value const& value, std::int64_t count, Budget& budget) {
  auto const times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  std::size_t const size =
      value.text() ? value.text()->bytes.size() : value.list()->items.size() * sizeof(Value);
  if (size > 0 && times > std::numeric_limits<std::size_t>::max() / 2 / size) out_of_range();
  Charge const charge(budget, size * times);
  budget.step(size * times);
  if (auto const* text = value.text()) {
    std::string out;
    for (std::size_t i = 0; size > 0 && i < times; ++i) out += text->bytes;
    return make_text(budget, std::move(out));
  }
  std::vector<Value> out;
  for (std::size_t i = 0; size > 0 && i < times; ++i)
    out.insert(out.end(), value.list()->items.begin(), value.list()->items.end());
  return make_list(budget, std::move(out), value.list()->shape);
}

bool is_sequence(Value const& value) {
  return value.text() || (value.list() && value.list()->shape != List::Shape::generator);
}

}  // namespace

Value arithmetic(std::string_view name, Value const& a, Value const& b, Budget& budget) {
  if (a.is_integral() && b.is_integral() && name != "/" && (name != "**" || b.integer() >= 0))
    return integers(name, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return reals(name, a.number(), b.number());
  if (name == "*" && is_sequence(a) && b.is_integral()) return repeated(a, b.integer(), budget);
  if (name == "*" && is_sequence(b) && a.is_integral()) return repeated(b, a.integer(), budget);
  if (name == "%" && a.text()) fail("formatting text with % is not supported; use ~");
  if (name != "+") no_operation(name, a, b);
  if (auto const* x = a.text(), *y = b.text(); x && y) {
    for (auto const* each : {x, y})
      if (x->safe != y->safe && !each->safe &&
          each->bytes.find_first_of("&<>'\"") != std::string::npos)
        fail("text of the filter `safe` escapes HTML in text added by +; use ~");
    return make_text(budget, x->bytes + y->bytes, x->safe || y->safe);
  }
  auto const *x = a.list(), *y = b.list();
  if (!x || !y || x->shape != y->shape || x->shape == List::Shape::generator)
    no_operation(name, a, b);
  std::vector<Value> items = x->items;
  items.insert(items.end(), y->items.begin(), y->items.end());
  return make_list(budget, std::move(items), x->shape);
}

Value negated(Value const& value) {
  if (value.is<double>()) return Value(-value.number());
  if (!value.is_integral()) no_operation("-", Value(std::int64_t{0}), value);
  return integers("-", 0, value.integer());
}

bool contains(Value const& container, Value const& item, Budget& budget) {
  if (auto const* text = container.text()) {
    if (!item.text()) no_operation("in", item, container);
    budget.step(text->bytes.size());
    return text->bytes.find(item.text()->bytes) != std::string::npos;
  }
  if (auto const* dict = container.dict()) return dict->find(item, budget) != nullptr;
  if (!container.list() && !container.is_undefined()) no_operation("in", item, container);
  return std::ranges::any_of(elements(container, budget),
                             [&](Value const& each) { return equal(each, item, budget); });
}

Value item_of(Value const& container, Value const& key, Budget& budget) {
  if (auto const* missing = container.get<Undefined>())
    fail(missing->why ? missing->why->bytes : std::string("a value is undefined"));
  if (auto const* dict = container.dict()) {
    if (auto const* found = dict->find(key, budget)) return *found;
  } else if (is_sequence(container) && key.is_integral()) {
    std::int64_t const size = length(container, budget);
    std::int64_t const index = key.integer() + (key.integer() < 0 ? size : 0);
    if (index >= 0 && index < size) {
      if (auto const* list = container.list()) return list->items[static_cast<std::size_t>(index)];
      auto const parts = characters(container.text()->bytes);
      return make_text(budget, std::string(parts[static_cast<std::size_t>(index)]));
    }
  }
  if (key.text() && !container.dict()) return attribute_of(container, key.text()->bytes, budget);
  if (key.text() && has_method(container, key.text()->bytes)) return Value(Function{"method"});
  return make_undefined(
      budget, concat("a ", type_name(container), " has no element ", to_repr(key, budget)));
}

namespace {

/// A member of the variable `loop`.
Value loop_member(Loop const& loop, std::string_view name, Budget& budget) {
  auto const& items = loop.items->items;
  auto const size = static_cast<std::int64_t>(items.size());
  auto const index = static_cast<std::int64_t>(loop.index);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(std::int64_t{1});  // only recursive loops count deeper
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem" && index > 0) return items[loop.index - 1];
  if (name == "nextitem" && index + 1 < size) return items[loop.index + 1];
  return make_undefined(budget, concat("the loop has no ", name, " here"));
}

}  // namespace

Value attribute_of(Value const& value, std::string_view name, Budget& budget) {
  if (auto const* missing = value.get<Undefined>())
    fail(missing->why ? missing->why->bytes : std::string("a value is undefined"));
  budget.step();
  if (has_method(value, name)) return Value(Function{"method"});
  if (auto const* dict = value.dict(); dict && !name.starts_with("__")) {
    budget.step(8 * dict->members.size());
    if (auto const* found = dict->find(name)) return *found;
  }
  if (auto const* held = value.get<Namespace*>()) {
    budget.step((*held)->members.size());
    for (auto const& [each, member] : (*held)->members)
      if (each == name) return member;
  }
  if (auto const* loop = value.get<std::shared_ptr<Loop const>>())
    return loop_member(**loop, name, budget);
  return make_undefined(budget, concat("a ", type_name(value), " has no member '", name, "'"));
}

Value slice_of(Value const& value, Value const* begin, Value const* end, Value const* step,
               Budget& budget) {
  if (!is_sequence(value)) fail(concat("a ", type_name(value), " cannot be sliced"));
  for (Value const* bound : {begin, end, step})
    if (bound && !bound->is_none() && !bound->is_integral())
      fail(concat("a ", type_name(*bound), " cannot bound a slice"));
  auto const given = [](Value const* bound) { return bound && !bound->is_none(); };
  std::int64_t const by = given(step) ? step->integer() : 1;
  if (by == 0) fail("the step of a slice is zero");
  std::int64_t const size = length(value, budget);
  std::int64_t const lowest = by > 0 ? 0 : -1, highest = by > 0 ? size : size - 1;
  auto const place = [&](Value const* bound, std::int64_t standard) {
    if (!given(bound)) return standard;
    std::int64_t const at = bound->integer();
    return std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  std::int64_t at = place(begin, by > 0 ? lowest : highest);
  std::int64_t const stop = place(end, by > 0 ? highest : lowest);
  std::vector<std::size_t> chosen;
  for (; by > 0 ? at < stop : at > stop;) {
    chosen.push_back(static_cast<std::size_t>(at));
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  budget.step(chosen.size() * sizeof(std::size_t));
  if (auto const* list = value.list()) {
    std::vector<Value> items;
    for (std::size_t const i : chosen) items.push_back(list->items[i]);
    return make_list(budget, std::move(items), list->shape);
  }
  auto const parts = characters(value.text()->bytes);
  std::string text;
  for (std::size_t const i : chosen) text += parts[i];
  return make_text(budget, std::move(text));
}

}  // namespace tessera::data::detail
