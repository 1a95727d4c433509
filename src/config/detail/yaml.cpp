#include "detail/yaml.hpp"

#include <yaml.h>

#include <cerrno>
#include <cmath>
#include <fstream>

#include "detail/number_text.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/utf8.hpp"

namespace tessera::config::detail {
namespace {

constexpr int max_depth = 64;

/// An event of libyaml; deleted with its owner.
class Event {
 public:
  explicit Event(yaml_parser_t& parser) : read_(yaml_parser_parse(&parser, &event_) != 0) {}
  ~Event() {
    if (read_) yaml_event_delete(&event_);
  }
  Event(Event const&) = delete;
  Event& operator=(Event const&) = delete;
  bool ok() const { return read_; }
  yaml_event_type_t type() const { return event_.type; }
  yaml_event_t const& get() const { return event_; }

 private:
  yaml_event_t event_{};
  bool read_;
};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (auto const word : words)
    if (text == word) return true;
  return false;
}

/// A scalar without quotes.
ConfigTree plain_value(std::string const& text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return {};
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}))
    return false;
  ConfigTree number = number_from(text);
  if (!number.is_null() && std::isfinite(number.as_double())) return number;
  return text;
}

class Reader {
 public:
  Reader(std::string_view text, std::string const& source) : source_(source) {
    TESSERA_VALIDATE(yaml_parser_initialize(&parser_) != 0, InternalError,
                     "libyaml has no memory for a parser");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<unsigned char const*>(text.data()),
                                 text.size());
  }
  ~Reader() { yaml_parser_delete(&parser_); }
  Reader(Reader const&) = delete;
  Reader& operator=(Reader const&) = delete;

  ConfigTree read() {
    expect(YAML_STREAM_START_EVENT);
    Event const begin(parser_);
    check(begin);
    if (begin.type() == YAML_STREAM_END_EVENT) return {};
    ConfigTree out = next(0);
    expect(YAML_DOCUMENT_END_EVENT);
    Event const end(parser_);
    check(end);
    if (end.type() != YAML_STREAM_END_EVENT) fail(end, "the file has more than one document");
    return out;
  }

 private:
  [[noreturn]] void fail_at(yaml_mark_t const& mark, std::string const& what) const {
    throw DataError(concat(source_, " is not valid YAML: line ", mark.line + 1, ", column ",
                           mark.column + 1, ": ", what));
  }
  [[noreturn]] void fail(Event const& event, std::string const& what) const {
    fail_at(event.get().start_mark, what);
  }
  void check(Event const& event) const {
    if (event.ok()) return;
    bool const marked = parser_.problem_mark.line > 0 || parser_.problem_mark.column > 0;
    fail_at(marked ? parser_.problem_mark : parser_.mark,
            parser_.problem ? parser_.problem : "it cannot be read");
  }
  void expect(yaml_event_type_t type) {
    Event const event(parser_);
    check(event);
    if (event.type() != type) fail(event, "unexpected content");
  }

  ConfigTree next(int depth) {
    Event const event(parser_);
    check(event);
    return value(event, depth);
  }

  ConfigTree value(Event const& event, int depth) {
    if (depth > max_depth) fail(event, concat("nested deeper than ", max_depth, " levels"));
    switch (event.type()) {
      case YAML_SCALAR_EVENT:
        return scalar(event);
      case YAML_SEQUENCE_START_EVENT:
        return sequence(depth);
      case YAML_MAPPING_START_EVENT:
        return mapping(depth);
      default:
        fail(event, "anchors and aliases are not supported; write the value out");
    }
  }

  static std::string text_of(Event const& event) {
    auto const& scalar = event.get().data.scalar;
    return {reinterpret_cast<char const*>(scalar.value), scalar.length};
  }
  static ConfigTree scalar(Event const& event) {
    bool const plain = event.get().data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return plain ? plain_value(text_of(event)) : ConfigTree(text_of(event));
  }

  ConfigTree sequence(int depth) {
    ConfigTree::Array items;
    for (;;) {
      Event const event(parser_);
      check(event);
      if (event.type() == YAML_SEQUENCE_END_EVENT) return items;
      items.push_back(value(event, depth + 1));
    }
  }

  ConfigTree mapping(int depth) {
    auto out = ConfigTree::object();
    for (;;) {
      Event const event(parser_);
      check(event);
      if (event.type() == YAML_MAPPING_END_EVENT) return out;
      if (event.type() != YAML_SCALAR_EVENT) fail(event, "a key must be text");
      std::string const key = text_of(event);
      if (out.contains(key)) fail(event, concat("the key '", key, "' appears twice; remove one"));
      out.set(key, next(depth + 1));
    }
  }

  yaml_parser_t parser_{};
  std::string const& source_;
};

}  // namespace

ConfigTree parse_yaml(std::string_view text, std::string const& source) {
  return Reader(text, source).read();
}

ConfigTree read_yaml(std::filesystem::path const& file) {
  constexpr std::size_t max_bytes = std::size_t{1} << 20;
  std::ifstream in(file, std::ios::binary);
  TESSERA_VALIDATE(in && !std::filesystem::is_directory(file), IoError,
                   with_errno("cannot read " + file.string(), in ? EISDIR : errno));
  std::string text(max_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  TESSERA_VALIDATE(text.size() <= max_bytes, DataError, file.string(),
                   " has more than 1 MiB; a configuration is smaller");
  require_narrow(text, file.string());
  return parse_yaml(text, file.string());
}

}  // namespace tessera::config::detail
