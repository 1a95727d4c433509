#pragma once
/// Splits the source of a template into text and the tokens of its tags, as Jinja's lexer does with
/// trim_blocks and lstrip_blocks.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::data::detail {

struct Token {
  enum class Kind {
    text,            ///< between tags
    block_begin,     ///< {%
    block_end,       ///< %}
    variable_begin,  ///< {{
    variable_end,    ///< }}
    name,
    string,  ///< a literal; its value
    integer,
    real,
    symbol,  ///< an operator or a bracket
    end
  };
  Kind kind = Kind::end;
  std::string value;
  int line = 1;
};

/// A template that cannot be parsed.
struct SyntaxError {
  int line;
  std::string message;
};

/// The last token is `end`. @throws SyntaxError
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace tessera::data::detail
