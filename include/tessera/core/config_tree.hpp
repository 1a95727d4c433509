#pragma once
/// JSON documents as values: DeepSpeed configurations, Hugging Face config.json, run files,
/// manifests, status and metrics.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

/// One JSON value. Objects keep the order of their keys. Integers and floating-point numbers are
/// distinct.
class ConfigTree {
 public:
  using Array = std::vector<ConfigTree>;
  using Member = std::pair<std::string, ConfigTree>;
  using Object = std::vector<Member>;

  ConfigTree() = default;  ///< null
  ConfigTree(std::nullptr_t) {}
  ConfigTree(bool v) : value_(v) {}
  ConfigTree(int v) : value_(std::int64_t{v}) {}
  ConfigTree(std::int64_t v) : value_(v) {}
  ConfigTree(std::uint64_t v) : value_(static_cast<std::int64_t>(v)) {}
  ConfigTree(double v) : value_(v) {}
  ConfigTree(char const* v) : value_(std::string(v)) {}
  ConfigTree(std::string v) : value_(std::move(v)) {}
  ConfigTree(std::string_view v) : value_(std::string(v)) {}
  ConfigTree(Array v) : value_(std::move(v)) {}
  ConfigTree(Object v) : value_(std::move(v)) {}
  static ConfigTree object() { return ConfigTree(Object{}); }
  static ConfigTree array() { return ConfigTree(Array{}); }

  /// Parses strict JSON, or with `relaxed` the Hjson in which DeepSpeed reads its configuration:
  /// comments, keys and text without quotes, missing and trailing commas. Refuses duplicate keys,
  /// more than 64 MiB, and nesting deeper than 64. @p source names the text in messages.
  /// @throws DataError with line and column.
  enum class Syntax { strict, relaxed };
  static ConfigTree parse(std::string_view text, std::string const& source,
                          Syntax syntax = Syntax::strict);
  /// The members of one object as Python's json.dumps writes it: NaN, Infinity and numbers beyond
  /// the range of a double are null. Nested objects and arrays of any depth are left empty, and a
  /// key may appear twice. @throws DataError for text that is not JSON otherwise.
  static ConfigTree parse_record(std::string_view text, std::string const& source);
  /// @throws IoError if the file cannot be read, DataError if it is malformed.
  static ConfigTree read(std::filesystem::path const& file, Syntax syntax = Syntax::strict);

  /// indent < 0: one line. Non-finite numbers become null (JSON has none).
  std::string dump(int indent = -1) const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  /// "an object", "a string", ... for messages.
  std::string_view type_name() const;

  /// Typed reads; @throws DataError naming the found type. as_int accepts a floating-point number
  /// without a fraction (5e8).
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_double() const;
  std::string const& as_string() const;
  Array const& as_array() const;
  Object const& as_object() const;

  /// Member of an object, or null if it is absent (or this is not an object).
  ConfigTree const* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// @throws DataError naming the key when absent.
  ConfigTree const& at(std::string_view key) const;
  /// Inserts or replaces a member; turns null into an object.
  ConfigTree& set(std::string key, ConfigTree value);
  ConfigTree& operator[](std::string_view key);
  void erase(std::string_view key);
  /// Appends to an array; turns null into an array.
  void push_back(ConfigTree value);
  std::size_t size() const;

  /// Member or default.
  std::int64_t get_int(std::string_view key, std::int64_t default_value) const;
  double get_double(std::string_view key, double default_value) const;
  bool get_bool(std::string_view key, bool default_value) const;
  std::string get_string(std::string_view key, std::string const& default_value) const;

  bool operator==(ConfigTree const&) const = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

}  // namespace tessera
