#include "format/detail/json_reader.hpp"

#include <algorithm>
#include <charconv>

#include "format/detail/text.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

constexpr int max_depth = 64;

void append_utf8(std::string& out, unsigned code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 63)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 63)));
    out.push_back(static_cast<char>(0x80 | (code & 63)));
  } else {
    out.push_back(static_cast<char>(0xF0 | code >> 18));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 63)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 63)));
    out.push_back(static_cast<char>(0x80 | (code & 63)));
  }
}

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
    if (text_[at_] != '\\') fail("a control character stands in a string");
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
  append_utf8(out, code);
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

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    auto const byte = [&](std::size_t k) {
      return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u;
    };
    unsigned const lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    std::size_t const length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4) return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    unsigned const second = byte(i + 1);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
      return false;
    i += length;
  }
  return true;
}

}  // namespace tessera::checkpoint::detail
