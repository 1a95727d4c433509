#pragma once
/// Values of options: read from flags, flat JSON files and nested JSON, and checked against their
/// table.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/option_table.hpp"

namespace tessera::config {

/// Values by option name, with their origin. Options that were not given are absent.
struct OptionValues {
  /// A given value and where it was given.
  struct Entry {
    ConfigTree value;
    Origin origin = Origin::default_value;
    bool operator==(Entry const&) const = default;
  };
  std::map<std::string, Entry, std::less<>> entries;

  bool given(std::string_view name) const { return entries.find(name) != entries.end(); }
  Origin origin(std::string_view name) const;
  /// The given value, else the table's default (null when it has none).
  ConfigTree const& value(OptionTable const& table, std::string_view name) const;
  /// Accepted hints that were given with another value than the default: "name: effect".
  std::vector<std::string> hints(OptionTable const& table) const;
};

/// Who is told about a wrong value: flags end in UsageError (64), JSON keys in ConfigError (78).
enum class Audience { flag, key };

/// "an integer from 0 to 3", "one of a, b": what a value of the option must be.
std::string expectation(Option const& option);

/// Checks a JSON value against its option: type, range, choices, support; returns it in the
/// option's type (5e8 becomes an integer). "auto" comes back as the string "auto". Null and the
/// default are always accepted, also where the option is refused; so is a refused block that says
/// {"enabled": false}.
/// @param shown  the name to use in messages
/// @throws UsageError or ConfigError, by @p audience
ConfigTree checked_value(Option const& option, ConfigTree const& value, std::string const& shown,
                         Audience audience);

/// Parses and checks the text of a flag, as checked_value() does with a value.
ConfigTree parsed_value(Option const& option, std::string const& text, std::string const& shown);

/// A flat JSON object into values. @p source names it in messages. @throws ConfigError
OptionValues parse_flat(OptionTable const& table, ConfigTree const& object,
                        std::string const& source);

/// Every value of a JSON object, keyed by dotted path ("zero_optimization.stage"), checked against
/// a table of dotted names. Unknown keys at any level, a key together with its alias, and values
/// where a block belongs are errors. @throws ConfigError
OptionValues parse_nested(OptionTable const& table, ConfigTree const& object,
                          std::string const& source);

}  // namespace tessera::config
