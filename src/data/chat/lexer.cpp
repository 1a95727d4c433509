#include "chat/syntax.hpp"

#include <algorithm>

#include "chat/value.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

using TokenKind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

/// Well-formed text with line ends as \n, without the last one.
std::string with_line_feeds(std::string_view bytes) {
  std::string source, out;
  append_valid_utf8(bytes, source);
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r')
      out += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      out += '\n';
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_line_feeds(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  char at(std::size_t i) const { return i < source_.size() ? source_[i] : ' '; }
  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, bytes), '\n'));
    at_ += bytes;
  }
  bool takes(std::string_view text) {
    if (!rest().starts_with(text)) return false;
    advance(text.size());
    return true;
  }
  void skip_space() { advance(rest().size() - stripped(rest(), true, false).size()); }
  void add(TokenKind kind, std::string_view value) {
    tokens_.push_back({kind, std::string(value), line_});
  }
  [[noreturn]] void fail(std::string message) const {
    throw SyntaxError{line_, std::move(message)};
  }

  /// Text up to the next tag, and the tag.
  void read_text() {
    std::size_t tag = source_.find('{', at_);
    while (tag < source_.size() && at(tag + 1) != '%' && at(tag + 1) != '{' && at(tag + 1) != '#')
      tag = source_.find('{', tag + 1);
    if (tag >= source_.size()) {
      add(TokenKind::data, rest());
      at_ = source_.size();
      return;
    }
    std::string const opening = source_.substr(tag, 2);
    char const sign = at(tag + 2);
    std::string_view const text = before_tag(rest().substr(0, tag - at_), opening, sign);
    if (!text.empty()) add(TokenKind::data, text);
    advance(tag - at_ + 2);
    if (sign == '-' || sign == '+') advance(1);
    if (opening == "{#") return skip_comment();
    add(TokenKind::symbol, opening);
    read_tag(opening == "{%" ? "%}" : "}}");
  }

  /// Text without what the sign of the tag and lstrip_blocks remove before the tag.
  std::string_view before_tag(std::string_view text, std::string_view opening, char sign) const {
    if (sign == '-') return stripped(text, false, true);
    std::size_t const line = text.rfind('\n') + 1;  // 0 without a line feed
    bool const begins_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    bool const strips = sign != '+' && opening != "{{" && begins_line;
    if (strips && stripped(text.substr(line), true, false).empty()) return text.substr(0, line);
    return text;
  }

  void skip_comment() {
    std::size_t const end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment is not closed");
    bool const has_sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    advance(end - at_ - (has_sign ? 1 : 0));
    takes_end("#}");
  }

  /// The end of a tag or a comment, and what its sign or trim_blocks removes after it.
  bool takes_end(std::string const& end) {
    bool const trims = end != "}}";
    if (takes("-" + end)) {
      skip_space();
      return true;
    }
    if (trims && takes("+" + end)) return true;
    if (!takes(end)) return false;
    if (trims) takes("\n");
    return true;
  }

  void read_tag(std::string const& end) {
    std::string open;  // brackets
    while (true) {
      skip_space();
      if (at_ >= source_.size()) fail("a tag is not closed");
      if (open.empty() && takes_end(end)) return add(TokenKind::symbol, end);
      char const c = source_[at_];
      if (is_digit(c) || is_letter(c))
        read_word();
      else if (c == '\'' || c == '"')
        read_string(c);
      else
        read_symbol(open);
    }
  }

  /// A name or a decimal integer.
  void read_word() {
    std::size_t end = at_;
    while (is_letter(at(end)) || is_digit(at(end))) ++end;
    std::string const word = source_.substr(at_, end - at_);
    bool const number = is_digit(word[0]);
    bool const decimal = std::ranges::all_of(word, is_digit) && (word == "0" || word[0] != '0') &&
                         !(at(end) == '.' && is_digit(at(end + 1)));
    if (number && !decimal)
      fail("a number is not a decimal integer; other notations are not supported");
    add(number ? TokenKind::integer : TokenKind::name, word);
    advance(word.size());
    // What follows is not lexed as tags, so that it cannot be left to the parser.
    if (word == "raw" && tokens_.size() > 1 && tokens_[tokens_.size() - 2].value == "{%")
      fail("the tag {% raw %} is not supported in chat templates");
  }

  void read_string(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      constexpr std::string_view letters = "nrt\\'\"", values = "\n\r\t\\'\"";
      if (source_[i] != '\\') {
        value += source_[i];
        continue;
      }
      char const c = at(++i);
      if (std::size_t const found = letters.find(c); found != std::string_view::npos)
        value += values[found];
      else if (std::string_view("abfvxuUN01234567\n").find(c) != std::string_view::npos)
        fail(std::string("the escape \\") + c + " is not supported; write the character");
      else
        value += {'\\', c};
    }
    if (i >= source_.size()) fail("a string is not closed");
    add(TokenKind::string, value);
    advance(i + 1 - at_);
  }

  void read_symbol(std::string& open) {
    for (std::string_view const symbol : {"**", "//", "==", "!=", ">=", "<="})
      if (takes(symbol)) return add(TokenKind::symbol, symbol);
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
    add(TokenKind::symbol, std::string_view(&c, 1));
    advance(1);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) { return Lexer(source).run(); }

}  // namespace tessera::data::detail
