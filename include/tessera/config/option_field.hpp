#pragma once
/// Variables as options: the option type of a C++ type, and both directions between a variable and
/// its JSON value.

#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/config/option_table.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {

/// The names of an enumeration's values in their order: a std::array of text.
template <class Enum>
inline constexpr int enum_names = 0;

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
constexpr OptionType option_type() {
  if constexpr (is_optional<T>)
    return option_type<typename T::value_type>();
  else if constexpr (std::is_same_v<T, bool>)
    return OptionType::boolean;
  else if constexpr (std::is_integral_v<T>)
    return OptionType::integer;
  else if constexpr (std::is_floating_point_v<T>)
    return OptionType::real;
  else if constexpr (std::is_enum_v<T>)
    return OptionType::choice;
  else if constexpr (std::is_same_v<T, std::filesystem::path>)
    return OptionType::path;
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return OptionType::list;
  else if constexpr (std::is_same_v<T, ConfigTree>)
    return OptionType::json;
  else
    return OptionType::string;
}

/// Null: none. Empty text and paths are null.
template <class T>
ConfigTree to_tree(T const& field) {
  if constexpr (is_optional<T>)
    return field ? to_tree(*field) : ConfigTree();
  else if constexpr (std::is_enum_v<T>)
    return enum_names<T>.at(static_cast<std::size_t>(field));
  else if constexpr (std::is_same_v<T, std::filesystem::path> || std::is_same_v<T, std::string>)
    return field.empty() ? ConfigTree() : ConfigTree(std::string(field));
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return ConfigTree::Array(field.begin(), field.end());
  else
    return field;
}

/// Sets @p field to a value that checked_value() has accepted for @p name; null leaves it.
/// @throws UsageError for an integer that the variable cannot hold
template <class T>
void assign(T& field, ConfigTree const& value, std::string const& name) {
  if (value.is_null()) return;
  if constexpr (is_optional<T>) {
    assign(field.emplace(), value, name);
  } else if constexpr (std::is_same_v<T, bool>) {
    field = value.as_bool();
  } else if constexpr (std::is_integral_v<T>) {
    std::int64_t const number = value.as_int();
    TESSERA_VALIDATE(std::in_range<T>(number), UsageError, name, " is ", number,
                     "; it must be at most ", std::numeric_limits<T>::max());
    field = static_cast<T>(number);
  } else if constexpr (std::is_floating_point_v<T>) {
    field = value.as_double();
  } else if constexpr (std::is_enum_v<T>) {
    for (std::size_t i = 0; i < enum_names<T>.size(); ++i)
      if (value.as_string() == enum_names<T>[i]) field = static_cast<T>(i);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    field.clear();
    for (auto const& item : value.as_array()) field.push_back(item.as_string());
  } else if constexpr (std::is_same_v<T, ConfigTree>) {
    field = value;
  } else {  // a boolean or a number means its text
    field = value.is_string()            ? value.as_string()
            : value == ConfigTree(false) ? std::string()
                                         : value.dump();
  }
}

}  // namespace tessera::config
