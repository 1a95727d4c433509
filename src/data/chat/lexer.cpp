#include "chat/lexer.hpp"

#include <algorithm>
#include <optional>

#include "chat/value.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

using Kind = Token::Kind;

/// Line ends as \n, without the last one.
std::string with_line_feeds(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r')
      out += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      out += '\n';
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

/// The value of a string literal between its quotes.
std::string unescaped(std::string_view text, int line) {
  std::string out;
  auto const number = [&](std::size_t& at, std::size_t digits, int base) {
    std::string const part(text.substr(at, digits));
    std::string const allowed = base == 8 ? "01234567" : "0123456789abcdefABCDEF";
    std::size_t const used = std::min(part.find_first_not_of(allowed), part.size());
    if (base == 16 && used < digits) throw SyntaxError{line, "an escape in a string is cut short"};
    at += used;
    auto const code = static_cast<char32_t>(std::stoul(part.substr(0, used), nullptr, base));
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      throw SyntaxError{line, "an escape in a string is not a character"};
    append_code_point(code, out);
  };
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      out += text[i++];
      continue;
    }
    char const c = text[i + 1];  // the lexer has seen a character after each backslash
    constexpr std::string_view letters = "abfnrtv\\'\"", values = "\a\b\f\n\r\t\v\\'\"";
    std::size_t const found = letters.find(c);
    if (c >= '0' && c <= '7') {
      number(++i, 3, 8);
      continue;
    }
    i += 2;
    if (found != std::string_view::npos)
      out += values[found];
    else if (c == 'x' || c == 'u' || c == 'U')
      number(i, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    else if (c == 'N')
      throw SyntaxError{line, "\\N{...} in a string is not supported; write the character"};
    else if (c != '\n')
      out += {'\\', c};
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_line_feeds(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text();
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool takes(std::string_view text) {
    if (!rest().starts_with(text)) return false;
    advance(text.size());
    return true;
  }
  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
    line_starts_ = at_ > 0 && source_[at_ - 1] == '\n';
  }
  void skip_space() {
    while (at_ < source_.size()) {
      std::size_t next = at_;
      if (!is_space(next_code_point(source_, next))) return;
      advance(next - at_);
    }
  }
  void add(Kind kind, std::string value) { tokens_.push_back({kind, std::move(value), line_}); }
  [[noreturn]] void fail(std::string message) const {
    throw SyntaxError{line_, std::move(message)};
  }

  /// Text before a tag, without what the tag's sign and lstrip_blocks remove.
  void add_text(std::string_view text, char sign, bool is_variable, bool line_starts) {
    std::size_t size = text.size();
    auto const strip_to = [&](std::size_t least, bool lines) {
      while (size > least) {
        std::size_t begin = size - 1;
        while (begin > least && (text[begin] & 0xc0) == 0x80) --begin;
        std::size_t next = begin;
        char32_t const code = next_code_point(text, next);
        if (!is_space(code) || (code == '\n' && !lines)) return;
        size = begin;
      }
    };
    if (sign == '-') {
      strip_to(0, true);
    } else if (sign != '+' && !is_variable) {
      std::size_t const begin = text.rfind('\n') + 1;  // 0 without a line feed
      if (begin > 0 || line_starts) {
        strip_to(begin, false);
        if (size > begin) size = text.size();
      }
    }
    if (size > 0) add(Kind::text, std::string(text.substr(0, size)));
  }

  /// The end of a tag; false if it is not here.
  bool takes_end(std::string_view end, bool trims) {
    if (takes("-" + std::string(end))) {
      skip_space();
      return true;
    }
    if (trims && takes("+" + std::string(end))) return true;
    if (!takes(end)) return false;
    if (trims) takes("\n");
    return true;
  }

  /// Text up to the next tag, and the tag.
  void read_text() {
    std::size_t tag = at_;
    do {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) tag = source_.size();
      if (tag + 1 >= source_.size()) return add_rest();
    } while (std::string_view("%{#").find(source_[tag + 1]) == std::string_view::npos && ++tag);
    char const type = source_[tag + 1];
    char const sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    std::string const text = source_.substr(at_, tag - at_);
    bool const line_starts = line_starts_;
    add_text(text, sign, type == '{', line_starts);
    advance(tag - at_ + 2);
    if (sign == '-' || sign == '+') advance(1);
    if (type == '#') return skip_comment();
    if (type == '%' && takes_raw()) return;
    add(type == '%' ? Kind::block_begin : Kind::variable_begin, "");
    read_tag(type == '%');
  }

  void add_rest() {
    if (at_ < source_.size()) add(Kind::text, source_.substr(at_));
    at_ = source_.size();
  }

  void skip_comment() {
    std::size_t const end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment is not closed");
    bool const strips = end > at_ && source_[end - 1] == '-';
    bool const keeps = end > at_ && source_[end - 1] == '+';
    advance(end + 2 - at_);
    if (strips)
      skip_space();
    else if (!keeps)
      takes("\n");
  }

  /// {% raw %}text{% endraw %}, after its {%
  bool takes_raw() {
    std::size_t const begin = at_;
    int const line = line_;
    skip_space();
    bool found = takes("raw");
    if (found) {
      skip_space();
      found = takes_end("%}", false);
    }
    if (!found) {
      at_ = begin;
      line_ = line;
      return false;
    }
    for (std::size_t end = source_.find("{%", at_); end != std::string::npos;
         end = source_.find("{%", end + 2)) {
      std::string const text = source_.substr(at_, end - at_);
      std::size_t const text_begin = at_;
      int const text_line = line_;
      bool const line_starts = line_starts_;
      advance(text.size() + 2);
      char const sign = at_ < source_.size() ? source_[at_] : ' ';
      if (sign == '-' || sign == '+') advance(1);
      skip_space();
      bool ends = takes("endraw");
      if (ends) {
        skip_space();
        ends = takes_end("%}", true);
      }
      if (ends) {
        add_text(text, sign, false, line_starts);
        return true;
      }
      at_ = text_begin;
      line_ = text_line;
    }
    fail("{% raw %} without {% endraw %}");
  }

  void read_tag(bool is_block) {
    std::string open;  // brackets
    while (true) {
      skip_space();
      if (at_ >= source_.size()) fail("a tag is not closed");
      if (open.empty() && takes_end(is_block ? "%}" : "}}", is_block))
        return add(is_block ? Kind::block_end : Kind::variable_end, "");
      char const c = source_[at_];
      if (is_digit(c))
        read_number();
      else if (is_letter(c))
        read_name();
      else if (c == '\'' || c == '"')
        read_string(c);
      else
        read_symbol(open);
    }
  }

  void read_name() {
    std::size_t end = at_;
    while (end < source_.size() && (is_letter(source_[end]) || is_digit(source_[end]))) ++end;
    add(Kind::name, source_.substr(at_, end - at_));
    advance(end - at_);
  }

  void read_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed");
    add(Kind::string, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
    advance(end + 1 - at_);
  }

  /// A decimal integer, or a number with a fraction or an exponent.
  void read_number() {
    std::size_t end = at_;
    auto const digits = [&](std::size_t from) {
      while (from < source_.size() &&
             (is_digit(source_[from]) || (source_[from] == '_' && from > end)))
        ++from;
      return from;
    };
    end = digits(end);
    bool real = false;
    bool const after_dot = at_ > 0 && source_[at_ - 1] == '.';
    auto const at = [&](std::size_t i) { return i < source_.size() ? source_[i] : ' '; };
    if (!after_dot && at(end) == '.' && is_digit(at(end + 1))) {
      real = true;
      end = digits(end + 1);
    }
    if (!after_dot && (at(end) == 'e' || at(end) == 'E')) {
      std::size_t const exponent = end + (at(end + 1) == '-' || at(end + 1) == '+' ? 2 : 1);
      if (is_digit(at(exponent))) {
        real = true;
        end = digits(exponent);
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    bool const zeros = text.find_first_not_of('0') == std::string::npos;
    if (is_letter(at(end)) || (!real && text[0] == '0' && !zeros))
      fail("a number is not decimal; other notations are not supported");
    add(real ? Kind::real : Kind::integer, text);
    advance(end - at_);
  }

  void read_symbol(std::string& open) {
    for (std::string_view const symbol : {"**", "//", "==", "!=", ">=", "<="})
      if (takes(symbol)) return add(Kind::symbol, std::string(symbol));
    char const c = source_[at_];
    constexpr std::string_view opening = "([{", closing = ")]}";
    if (std::string_view("+-*/%~<>=.:|,;()[]{}").find(c) == std::string_view::npos)
      fail(std::string("the character '") + c + "' is not expected in a tag");
    if (std::size_t const found = opening.find(c); found != std::string_view::npos)
      open += closing[found];
    if (closing.find(c) != std::string_view::npos) {
      if (open.empty() || open.back() != c) fail(std::string("'") + c + "' closes nothing");
      open.pop_back();
    }
    add(Kind::symbol, std::string(1, c));
    advance(1);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) {
  std::string valid;
  append_valid_utf8(source, valid);
  return Lexer(valid).run();
}

}  // namespace tessera::data::detail
