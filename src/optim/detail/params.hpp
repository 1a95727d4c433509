#pragma once
/// Reads the parameters of a schedule from a configuration: unknown keys and wrong types are
/// refused by name.

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::optim::detail {

using Names = std::initializer_list<std::string_view>;

/// "a, b, c"
std::string join(Names names);

class Params {
 public:
  /// @param tree an object or null; @param where its name in messages, "scheduler.params"
  /// @throws ConfigError for anything else, and for a key that is not in @p known
  Params(ConfigTree const& tree, std::string where, Names known);

  /// Values, or nothing when the key is absent or null. A list of equal numbers, one a parameter
  /// group, counts as that number.
  std::optional<double> number(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t least) const;
  double number(std::string_view key, double otherwise) const {
    return number(key).value_or(otherwise);
  }
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t otherwise) const {
    return integer(key, least).value_or(otherwise);
  }
  bool flag(std::string_view key, bool otherwise) const;
  /// One of @p choices.
  std::string text(std::string_view key, Names choices, std::string otherwise) const;
  /// @throws ConfigError when the key is absent
  double required_number(std::string_view key) const;
  std::int64_t required_integer(std::string_view key, std::int64_t least) const;

 private:
  ConfigTree const* value(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string const& why) const;
  ConfigTree const& tree_;
  std::string where_;
};

}  // namespace tessera::optim::detail
