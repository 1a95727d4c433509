#pragma once
/// How filters, tests, methods and functions of templates are declared and called.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/interpreter.hpp"

namespace tessera::data::detail {

/// A call of a builtin with its arguments in the order of its parameters.
struct Call {
  Interpreter& interpreter;
  Value const& self;  ///< input of a filter or a test, object of a method
  Arguments const& arguments;
  std::vector<Value const*> given;  ///< by parameter; null where left out

  Budget& budget() const { return interpreter.budget(); }
  Value const* at(std::size_t i) const { return i < given.size() ? given[i] : nullptr; }
  /// An argument that must be of a kind, or its default. @throws TemplateError
  std::string text(std::size_t i, std::string_view standard) const;
  std::int64_t integer(std::size_t i, std::int64_t standard) const;
  bool flag(std::size_t i) const { return at(i) && truth(*at(i)); }
  Value make(std::string bytes) const { return make_text(budget(), std::move(bytes)); }
};

struct Builtin {
  std::string_view name;
  std::string_view parameters;  ///< separated by commas; "*": any arguments; "!" requires the first
  Value (*apply)(Call const&);
};

Builtin const* find_builtin(std::span<Builtin const> all, std::string_view name);
/// @param self as in Call. @throws TemplateError for arguments that it does not take
Value call_builtin(Interpreter& interpreter, Builtin const& builtin, Value const& self,
                   Arguments const& arguments);

// text_methods.cpp: what methods and filters of the same name share

std::string stripped(std::string_view text, Value const* characters, bool left, bool right);
std::string replaced(std::string const& text, std::string const& from, std::string const& to,
                     std::int64_t count, Budget& budget);
std::string in_upper_case(std::string_view text);
std::string in_lower_case(std::string_view text);
/// The first character in upper case and the others in lower case.
std::string capitalized(std::string_view text);
std::vector<std::string> lines_of(std::string_view text);
std::span<Builtin const> text_methods();

// filters.cpp
std::span<Builtin const> filters();

}  // namespace tessera::data::detail
