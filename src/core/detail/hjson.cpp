#include "detail/hjson.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::detail {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

class Reader {
 public:
  Reader(std::string_view text, std::string const& source,
         nlohmann::json_sax<nlohmann::json>& events)
      : text_(text), source_(source), events_(events) {
    at_ = text_.size() - without_mark(text_).size();
  }

  void read() {
    skip_blanks();
    if (peek() == '{' || peek() == '[')
      value();
    else
      members(Braces::absent, at_);
    skip_blanks();
    if (at_ < text_.size()) fail(concat("text follows the document: ", shown(text_.substr(at_))));
  }

 private:
  enum class Braces { present, absent };

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool at_end() const { return at_ >= text_.size(); }
  bool starts_comment() const {
    return peek() == '#' || (peek() == '/' && (peek(1) == '/' || peek(1) == '*'));
  }

  /// The start of @p text, for messages.
  static std::string shown(std::string_view text) {
    std::string_view const line = trimmed(text.substr(0, text.find('\n')));
    return concat("'", line.substr(0, 40), line.size() > 40 ? "...'" : "'");
  }

  [[noreturn]] void fail(std::string const& what, std::size_t where) const {
    std::string_view const before = text_.substr(0, std::min(where, text_.size()));
    auto const line = 1 + std::ranges::count(before, '\n');
    auto const column = before.size() - (before.rfind('\n') + 1) + 1;
    throw DataError(
        concat(source_, " is not valid JSON: line ", line, ", column ", column, ": ", what));
  }
  [[noreturn]] void fail(std::string const& what) const { fail(what, at_); }

  void skip_blanks() {
    while (!at_end()) {
      if (is_space(peek())) {
        ++at_;
      } else if (peek() == '/' && peek(1) == '*') {
        auto const end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) fail("this comment has no end");
        at_ = end + 2;
      } else if (starts_comment()) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }

  void skip_comma() {
    skip_blanks();
    if (peek() != ',') return;
    ++at_;
    skip_blanks();
  }

  void value() {
    switch (peek()) {
      case '{':
        ++at_;
        return members(Braces::present, at_ - 1);
      case '[':
        return items();
      case '"':
      case '\'': {
        std::string text =
            text_.substr(at_).starts_with("'''") ? lines_in_quotes() : quoted_string();
        events_.string(text);
        return;
      }
      default:
        return unquoted();
    }
  }

  void members(Braces braces, std::size_t opened) {
    events_.start_object(0);
    for (skip_blanks();; skip_comma()) {
      if (braces == Braces::present && peek() == '}') break;
      if (at_end()) {
        if (braces == Braces::absent) break;
        fail(
            "this object is not closed; text without quotes extends to the end of its line, "
            "brackets included",
            opened);
      }
      std::string name = key();
      events_.key(name);
      skip_blanks();
      if (peek() != ':') fail("':' is missing after the key");
      ++at_;
      skip_blanks();
      value();
    }
    if (braces == Braces::present) ++at_;
    events_.end_object();
  }

  void items() {
    std::size_t const opened = at_++;
    events_.start_array(0);
    for (skip_blanks(); peek() != ']'; skip_comma()) {
      if (at_end()) fail("this list is not closed", opened);
      value();
    }
    ++at_;
    events_.end_array();
  }

  std::string key() {
    if (peek() == '"' || peek() == '\'') return quoted_string();
    std::size_t const begin = at_;
    while (!at_end() && peek() != ':' &&
           std::string_view("{}[],\n").find(peek()) == std::string_view::npos)
      ++at_;
    std::string_view const name = trimmed(text_.substr(begin, at_ - begin));
    if (peek() != ':' || name.empty() || std::ranges::any_of(name, is_space))
      fail(concat("a key is expected, found ", shown(text_.substr(begin))), begin);
    return std::string(name);
  }

  /// true, false, null, a number, or the text up to the end of the line.
  void unquoted() {
    std::size_t const begin = at_;
    if (at_end() || std::string_view("}],:").find(peek()) != std::string_view::npos)
      fail(concat("a value is expected, found ", at_end() ? "the end" : shown(text_.substr(at_))));
    while (!at_end() && std::string_view(",}]\r\n").find(peek()) == std::string_view::npos &&
           !starts_comment())
      ++at_;
    if (literal(trimmed(text_.substr(begin, at_ - begin)))) return;
    at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
    std::string text(trimmed(text_.substr(begin, at_ - begin)));
    events_.string(text);
  }

  bool literal(std::string_view word) {
    if (word == "null") return events_.null(), true;
    if (word == "true" || word == "false") return events_.boolean(word == "true"), true;
    return number(word);
  }

  /// Whether JSON would write the number so: without a leading zero, plus or point.
  bool number(std::string_view word) {
    std::string_view const digits = word.substr(word.starts_with('-') ? 1 : 0);
    bool const is_digit = !digits.empty() && std::isdigit(static_cast<unsigned char>(digits[0]));
    bool const leading_zero = digits.size() > 1 && digits[0] == '0' &&
                              std::isdigit(static_cast<unsigned char>(digits[1]));
    if (!is_digit || leading_zero) return false;
    char const* const last = word.data() + word.size();
    std::int64_t integer = 0;
    if (auto const [end, error] = std::from_chars(word.data(), last, integer);
        error == std::errc() && end == last)
      return events_.number_integer(integer), true;
    double real = 0.0;
    auto const [end, error] = std::from_chars(word.data(), last, real);
    if (error != std::errc() || end != last || word.ends_with('.')) return false;
    return events_.number_float(real, std::string(word)), true;
  }

  std::string quoted_string() {
    std::size_t const begin = at_;
    char const quote = text_[at_++];
    std::string out;
    while (!at_end() && peek() != quote) {
      if (static_cast<unsigned char>(peek()) < 0x20)
        fail("a string does not end on its line", begin);
      if (peek() == '\\')
        escape(out);
      else
        out += text_[at_++];
    }
    if (at_end()) fail("a string has no closing quote", begin);
    ++at_;
    return out;
  }

  void escape(std::string& out) {
    constexpr std::string_view names = "\"'\\/bfnrt", values = "\"'\\/\b\f\n\r\t";
    std::size_t const begin = at_;
    char const name = peek(1);
    at_ += 2;
    if (name == 'u') return append_code_point(code_point(), out);
    auto const known = name == '\0' ? std::string_view::npos : names.find(name);
    if (known == std::string_view::npos) fail("an unknown escape sequence", begin);
    out += values[known];
  }

  std::uint32_t code_unit() {
    std::uint32_t unit = 0;
    std::string_view const digits = text_.substr(std::min(at_, text_.size()), 4);
    auto const [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4)
      fail("\\u needs four hexadecimal digits");
    at_ += 4;
    return unit;
  }

  char32_t code_point() {
    constexpr char32_t replacement = 0xFFFD;
    std::uint32_t const first = code_unit();
    if (first < 0xD800 || first > 0xDFFF) return static_cast<char32_t>(first);
    if (first > 0xDBFF || peek() != '\\' || peek(1) != 'u') return replacement;
    at_ += 2;
    std::uint32_t const second = code_unit();
    if (second < 0xDC00 || second > 0xDFFF) return replacement;
    return static_cast<char32_t>(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00));
  }

  /// '''...''': lines without the indentation of the opening quotes.
  std::string lines_in_quotes() {
    std::size_t const begin = at_, line = text_.rfind('\n', at_) + 1;  // npos + 1 is 0
    std::size_t const indent = begin - line, end = text_.find("'''", at_ + 3);
    if (end == std::string_view::npos) fail("a string has no closing quotes");
    std::string_view inside = text_.substr(at_ + 3, end - at_ - 3);
    at_ = end + 3;
    if (auto const first = inside.find_first_not_of(" \t\r");
        first != std::string_view::npos && inside[first] == '\n')
      inside.remove_prefix(first + 1);
    else
      return std::string(inside);
    std::string out;
    while (!inside.empty()) {
      std::size_t skip = 0;
      while (skip < indent && skip < inside.size() && (inside[skip] == ' ' || inside[skip] == '\t'))
        ++skip;
      inside.remove_prefix(skip);
      auto const next = std::min(inside.find('\n'), inside.size() - 1) + 1;
      if (inside.empty()) break;
      out += inside.substr(0, next);
      inside.remove_prefix(next);
    }
    std::erase(out, '\r');
    if (out.ends_with('\n')) out.pop_back();
    return out;
  }

  std::string_view text_;
  std::string const& source_;
  nlohmann::json_sax<nlohmann::json>& events_;
  std::size_t at_ = 0;
};

}  // namespace

void parse_hjson(std::string_view text, std::string const& source,
                 nlohmann::json_sax<nlohmann::json>& events) {
  Reader(text, source, events).read();
}

}  // namespace tessera::detail
