#include "tessera/core/config_tree.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "detail/hjson.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"

namespace tessera {
namespace {

constexpr std::size_t max_bytes = std::size_t{64} << 20;
constexpr std::size_t max_depth = 64;
/// A value takes 40 to 72 bytes of memory and as little as two characters of text: this bounds the
/// memory that a hostile document can take.
constexpr std::size_t max_values = 4'000'000;

/// Builds a ConfigTree from nlohmann's SAX events; refuses duplicate keys and deep nesting.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string const& source) : source_(source) {}
  ConfigTree take() { return std::move(root_); }

  bool null() override { return put(ConfigTree()); }
  bool boolean(bool v) override { return put(ConfigTree(v)); }
  bool number_integer(number_integer_t v) override {
    return put(ConfigTree(static_cast<std::int64_t>(v)));
  }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<number_unsigned_t>(INT64_MAX))
      return put(ConfigTree(static_cast<double>(v)));
    return put(ConfigTree(static_cast<std::int64_t>(v)));
  }
  bool number_float(number_float_t v, string_t const&) override { return put(ConfigTree(v)); }
  bool string(string_t& v) override { return put(ConfigTree(std::move(v))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_array() override { return close(); }
  bool key(string_t& v) override {
    TESSERA_VALIDATE(stack_.back().seen.insert(v).second, DataError, source_, ": the key '", v,
                     "' appears twice in one object; remove one of them");
    stack_.back().key = std::move(v);
    return true;
  }
  bool parse_error(std::size_t, std::string const&, nlohmann::detail::exception const& e) override {
    // nlohmann's text carries line and column; drop its own prefix
    std::string what = e.what();
    if (auto const at = what.find("parse error"); at != std::string::npos) what = what.substr(at);
    throw DataError(concat(source_, " is not valid JSON: ", what));
  }

 private:
  struct Frame {
    bool is_object;
    ConfigTree::Object members;
    ConfigTree::Array items;
    std::unordered_set<std::string> seen;
    std::string key;
  };

  bool put(ConfigTree value) {
    TESSERA_VALIDATE(++values_ <= max_values, DataError, source_, ": more than ", max_values,
                     " values");
    if (stack_.empty())
      root_ = std::move(value);
    else if (stack_.back().is_object)
      stack_.back().members.emplace_back(std::move(stack_.back().key), std::move(value));
    else
      stack_.back().items.push_back(std::move(value));
    return true;
  }
  bool open(bool is_object) {
    TESSERA_VALIDATE(stack_.size() < max_depth, DataError, source_, ": nested deeper than ",
                     max_depth, " levels");
    stack_.push_back({is_object, {}, {}, {}, {}});
    return true;
  }
  bool close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    return put(frame.is_object ? ConfigTree(std::move(frame.members))
                               : ConfigTree(std::move(frame.items)));
  }

  std::string const& source_;
  ConfigTree root_;
  std::size_t values_ = 0;
  std::vector<Frame> stack_;
};

/// Builds the members of one object; what is nested deeper is left out.
class RecordBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  ConfigTree take() { return ConfigTree(std::move(members_)); }
  std::string const& problem() const { return problem_; }

  bool null() override { return put({}); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(static_cast<std::int64_t>(v)); }
  bool number_unsigned(number_unsigned_t v) override { return put(static_cast<double>(v)); }
  bool number_float(number_float_t v, string_t const&) override { return put(v); }
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(ConfigTree::object()); }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return open(ConfigTree::array()); }
  bool end_array() override { return --depth_, true; }
  bool key(string_t& v) override {
    if (depth_ == 1) key_ = std::move(v);
    return true;
  }
  bool parse_error(std::size_t, std::string const&, nlohmann::detail::exception const& e) override {
    problem_ = e.what();
    if (auto const at = problem_.find("parse error"); at != std::string::npos)
      problem_ = problem_.substr(at);
    return false;
  }

 private:
  bool put(ConfigTree value) {
    if (depth_ == 1) members_.emplace_back(std::move(key_), std::move(value));
    return true;
  }
  bool open(ConfigTree empty) {
    put(std::move(empty));
    ++depth_;
    return true;
  }

  ConfigTree::Object members_;
  std::string key_, problem_;
  std::size_t depth_ = 0;
};

/// The words outside of strings that Python writes and JSON does not know.
bool is_no_json_number(std::string const& word) {
  for (char const* name : {"NaN", "Infinity", "-Infinity"})
    if (word == name) return true;
  bool const digits = word.find_first_not_of("+-.0123456789eE") == std::string::npos;
  return digits && std::isinf(std::strtod(word.c_str(), nullptr));
}

/// Replaces those words by null.
std::string without_nan(std::string_view text) {
  constexpr std::string_view ends = " \t\r\n,:{}[]\"";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      std::size_t const begin = at++;
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      at = std::min(at + 1, text.size());
      out += text.substr(begin, at - begin);
    } else if (ends.find(text[at]) != std::string_view::npos) {
      out += text[at++];
    } else {
      std::string const word(text.substr(at, text.find_first_of(ends, at) - at));
      out += is_no_json_number(word) ? "null" : word;
      at += word.size();
    }
  }
  return out;
}

nlohmann::ordered_json to_nlohmann(ConfigTree const& tree) {
  if (tree.is_null()) return nullptr;
  if (tree.is_bool()) return tree.as_bool();
  if (tree.is_int()) return tree.as_int();
  if (tree.is_number())
    return std::isfinite(tree.as_double()) ? nlohmann::ordered_json(tree.as_double()) : nullptr;
  if (tree.is_string()) return tree.as_string();
  if (tree.is_array()) {
    auto out = nlohmann::ordered_json::array();
    for (auto const& item : tree.as_array()) out.push_back(to_nlohmann(item));
    return out;
  }
  auto out = nlohmann::ordered_json::object();
  // keys are distinct already; looking each up would take the square of their number
  auto& members = out.get_ref<nlohmann::ordered_json::object_t&>();
  for (auto const& [key, value] : tree.as_object()) members.push_back({key, to_nlohmann(value)});
  return out;
}

}  // namespace

ConfigTree ConfigTree::parse(std::string_view text, std::string const& source, Syntax syntax) {
  TESSERA_VALIDATE(text.size() <= max_bytes, DataError, source, " has ",
                   human_bytes(static_cast<std::int64_t>(text.size())), "; at most ",
                   human_bytes(static_cast<std::int64_t>(max_bytes)), " are read as JSON");
  require_narrow(text, source);
  Builder builder(source);
  if (syntax == Syntax::relaxed)
    detail::parse_hjson(text, source, builder);
  else
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

ConfigTree ConfigTree::parse_record(std::string_view text, std::string const& source) {
  RecordBuilder builder;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  std::string const other = without_nan(text);
  RecordBuilder again;
  TESSERA_VALIDATE(nlohmann::json::sax_parse(other.begin(), other.end(), &again), DataError, source,
                   " is not valid JSON: ", again.problem());
  return again.take();
}

ConfigTree ConfigTree::read(std::filesystem::path const& file, Syntax syntax) {
  std::ifstream in(file, std::ios::binary);
  TESSERA_VALIDATE(in && !std::filesystem::is_directory(file), IoError,
                   path_error("cannot read", file, in ? EISDIR : errno));
  // not by its size: a pipe has none
  std::string text;
  for (std::vector<char> part(std::size_t{1} << 16); in && text.size() <= max_bytes;) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part.data(), static_cast<std::size_t>(in.gcount()));
  }
  return parse(text, file.string(), syntax);
}

std::string ConfigTree::dump(int indent) const {
  return to_nlohmann(*this).dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string_view ConfigTree::type_name() const {
  if (is_null()) return "null";
  if (is_bool()) return "true or false";
  if (is_int()) return "an integer";
  if (is_number()) return "a number";
  if (is_string()) return "a string";
  return is_array() ? "an array" : "an object";
}

bool ConfigTree::as_bool() const {
  TESSERA_VALIDATE(is_bool(), DataError, "expected true or false, found ", type_name(), " ",
                   dump());
  return std::get<bool>(value_);
}
std::int64_t ConfigTree::as_int() const {
  if (auto const* d = std::get_if<double>(&value_);
      d && *d == std::floor(*d) && std::abs(*d) < 9.0e18)
    return static_cast<std::int64_t>(*d);
  TESSERA_VALIDATE(is_int(), DataError, "expected an integer, found ", type_name(), " ", dump());
  return std::get<std::int64_t>(value_);
}
double ConfigTree::as_double() const {
  if (is_int()) return static_cast<double>(std::get<std::int64_t>(value_));
  TESSERA_VALIDATE(is_number(), DataError, "expected a number, found ", type_name(), " ", dump());
  return std::get<double>(value_);
}
std::string const& ConfigTree::as_string() const {
  TESSERA_VALIDATE(is_string(), DataError, "expected a string, found ", type_name(), " ", dump());
  return std::get<std::string>(value_);
}
ConfigTree::Array const& ConfigTree::as_array() const {
  TESSERA_VALIDATE(is_array(), DataError, "expected an array, found ", type_name(), " ", dump());
  return std::get<Array>(value_);
}
ConfigTree::Object const& ConfigTree::as_object() const {
  TESSERA_VALIDATE(is_object(), DataError, "expected an object, found ", type_name(), " ", dump());
  return std::get<Object>(value_);
}

ConfigTree const* ConfigTree::find(std::string_view key) const {
  if (auto const* members = std::get_if<Object>(&value_))
    for (auto const& member : *members)
      if (member.first == key) return &member.second;
  return nullptr;
}

ConfigTree const& ConfigTree::at(std::string_view key) const {
  auto const* found = find(key);
  TESSERA_VALIDATE(found, DataError, "the key '", std::string(key), "' is missing");
  return *found;
}

ConfigTree& ConfigTree::operator[](std::string_view key) {
  if (is_null()) value_ = Object{};
  TESSERA_VALIDATE(is_object(), DataError, "expected an object, found ", type_name());
  auto& members = std::get<Object>(value_);
  for (auto& member : members)
    if (member.first == key) return member.second;
  return members.emplace_back(std::string(key), ConfigTree()).second;
}

ConfigTree& ConfigTree::set(std::string key, ConfigTree value) {
  (*this)[key] = std::move(value);
  return *this;
}

void ConfigTree::erase(std::string_view key) {
  if (auto* members = std::get_if<Object>(&value_))
    std::erase_if(*members, [&](Member const& m) { return m.first == key; });
}

void ConfigTree::push_back(ConfigTree value) {
  if (is_null()) value_ = Array{};
  TESSERA_VALIDATE(is_array(), DataError, "expected an array, found ", type_name());
  std::get<Array>(value_).push_back(std::move(value));
}

std::size_t ConfigTree::size() const {
  if (is_array()) return as_array().size();
  return is_object() ? as_object().size() : 0;
}

std::int64_t ConfigTree::get_int(std::string_view key, std::int64_t default_value) const {
  auto const* found = find(key);
  return found && !found->is_null() ? found->as_int() : default_value;
}
double ConfigTree::get_double(std::string_view key, double default_value) const {
  auto const* found = find(key);
  return found && !found->is_null() ? found->as_double() : default_value;
}
bool ConfigTree::get_bool(std::string_view key, bool default_value) const {
  auto const* found = find(key);
  return found && !found->is_null() ? found->as_bool() : default_value;
}
std::string ConfigTree::get_string(std::string_view key, std::string const& default_value) const {
  auto const* found = find(key);
  return found && !found->is_null() ? found->as_string() : default_value;
}

}  // namespace tessera
