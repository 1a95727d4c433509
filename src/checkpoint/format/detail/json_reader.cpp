#include "format/detail/json_reader.hpp"

#include <algorithm>
#include <charconv>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

constexpr int max_depth = 64;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

void JsonReader::fail(std::string const& what) const {
  auto const until = text_.substr(0, std::min(at_, text_.size()));
  auto const line = 1 + std::count(until.begin(), until.end(), '\n');
  auto const line_start = until.rfind('\n');
  auto const column =
      until.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
  throw DataError(concat(source_, ", line ", line, ", column ", column, ": ", printable(what)));
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

char JsonReader::peek() {
  skip_space();
  if (at_ >= text_.size()) fail("the text ends too early");
  return text_[at_];
}

void JsonReader::expect(char c) {
  if (peek() != c) fail(concat("expected '", c, "', found '", text_[at_], "'"));
  ++at_;
}

void JsonReader::open(char c) {
  expect(c);
  if (++depth_ > max_depth) fail(concat("nested deeper than ", max_depth, " levels"));
}

bool JsonReader::more(char close, bool first) {
  if (peek() == close) {
    ++at_, --depth_;
    return false;
  }
  if (!first) expect(',');
  return true;
}

std::string JsonReader::string() {
  expect('"');
  std::string out;
  while (true) {
    std::size_t end = at_;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\\' &&
           static_cast<unsigned char>(text_[end]) >= 0x20)
      ++end;
    out.append(text_.substr(at_, end - at_));
    at_ = end;
    if (at_ >= text_.size()) fail("a string has no end");
    if (text_[at_] == '"') break;
    if (text_[at_] != '\\') fail("a string holds a control character");
    append_escape(out);
  }
  if (!is_utf8(out)) fail("a string is not valid UTF-8");
  ++at_;
  return out;
}

void JsonReader::append_escape(std::string& out) {
  static constexpr std::string_view letters = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
  ++at_;
  if (at_ >= text_.size()) fail("a string has no end");
  char const c = text_[at_++];
  if (auto const i = letters.find(c); i != std::string_view::npos) {
    out.push_back(values[i]);
    return;
  }
  if (c != 'u') fail(concat("unknown escape \\", c));
  unsigned code = hex4();
  if (code >= 0xD800 && code < 0xDC00) {
    if (text_.substr(at_, 2) != "\\u") fail("half a surrogate pair");
    at_ += 2;
    unsigned const low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code < 0xE000) {
    fail("half a surrogate pair");
  }
  append_code_point(code, out);
}

unsigned JsonReader::hex4() {
  unsigned code = 0;
  auto const digits = text_.substr(at_, 4);
  auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (error != std::errc{} || end != digits.data() + 4) fail("\\u needs four hexadecimal digits");
  at_ += 4;
  return code;
}

std::int64_t JsonReader::integer() {
  (void)peek();
  std::int64_t value = 0;
  auto const* first = text_.data() + at_;
  auto const [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
  if (error == std::errc::result_out_of_range) fail("an integer does not fit in 64 bits");
  if (error != std::errc{}) fail("expected an integer");
  at_ += static_cast<std::size_t>(end - first);
  char const next = at_ < text_.size() ? text_[at_] : ',';
  if (next != ',' && next != ']' && next != '}' && !is_space(next)) fail("expected an integer");
  return value;
}

void JsonReader::skip_string() {
  for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
    if (text_[at_] == '\\') ++at_;
  if (at_ >= text_.size()) fail("a string has no end");
  ++at_;
}

std::string_view JsonReader::raw() {
  (void)peek();
  std::size_t const start = at_;
  int open_brackets = 0;
  do {
    char const c = peek();
    if (c == '"') {
      skip_string();
    } else if (c == '{' || c == '[') {
      if (++open_brackets + depth_ > max_depth)
        fail(concat("nested deeper than ", max_depth, " levels"));
      ++at_;
    } else if (c == '}' || c == ']') {
      if (--open_brackets < 0) fail("a value is missing");
      ++at_;
    } else if (c == ',' || c == ':') {
      if (open_brackets == 0) fail("a value is missing");
      ++at_;
    } else {
      while (at_ < text_.size() && !is_space(text_[at_]) &&
             std::string_view(",:]}[{\"").find(text_[at_]) == std::string_view::npos)
        ++at_;
    }
  } while (open_brackets > 0);
  return text_.substr(start, at_ - start);
}

void JsonReader::end() {
  skip_space();
  if (at_ != text_.size()) fail("text follows the end");
}

std::string json_quote(std::string_view text) { return ConfigTree(text).dump(); }

std::string list_text(std::vector<std::int64_t> const& numbers) {
  std::string out(1, '[');
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out.append(", ");
    out.append(std::to_string(numbers[i]));
  }
  out.push_back(']');
  return out;
}

std::string list_text(std::vector<std::string> const& strings) {
  std::string out(1, '[');
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (i > 0) out.append(", ");
    out.append(json_quote(strings[i]));
  }
  out.push_back(']');
  return out;
}

}  // namespace tessera::checkpoint::detail
