#pragma once
/// Syntax trees of templates, and the parser that builds them.

#include <string>
#include <string_view>
#include <vector>

#include "chat/value.hpp"

namespace tessera::data::detail {

/// A statement or an expression. An argument by name is a `keyword` among the children.
struct Node {
  enum class Kind {
    missing,   ///< left out: the `else` of a conditional, a bound of a slice, a default
    constant,  ///< value
    name,
    attribute,    ///< object . text
    item,         ///< object [ key ]
    slice,        ///< object [ begin : end : step ]
    call,         ///< callee, arguments
    keyword,      ///< text = value
    apply,        ///< input | builtin(arguments), or input is builtin(arguments)
    unary,        ///< text: not, -, +
    binary,       ///< text: or, and, ==, in, +, ~, ...
    conditional,  ///< test, value, else
    list,
    tuple,
    dict,        ///< keys and values in turn
    body,        ///< statements; as a value what they write
    data,        ///< text between tags
    output,      ///< value
    loop,        ///< target, value, test, body, else
    condition,   ///< tests and bodies in turn, else
    assignment,  ///< target, value
    macro,       ///< parameters, body
    parameter,   ///< default
    generation,  ///< body
    break_loop,
    continue_loop
  };
  Kind kind = Kind::missing;
  int line = 1;
  std::string text;
  Value value{};
  Builtin const* builtin = nullptr;
  std::vector<Node> children;
  int depth = 1;  ///< levels of the tree
};

/// Counts a level of recursion while it lives.
class Level {
 public:
  explicit Level(int& count) : count_(count) { ++count_; }
  Level(Level const&) = delete;
  Level& operator=(Level const&) = delete;
  ~Level() { --count_; }

 private:
  int& count_;
};

/// A template that cannot be parsed.
struct SyntaxError {
  int line;
  std::string message;
};

/// A parsed template.
struct Syntax {
  Node body;
  bool has_generation = false;
};

/// @throws SyntaxError
Syntax parse_template(std::string_view source);

struct Token {
  enum class Kind {
    data,  ///< text between tags
    name,
    string,  ///< a literal; its value
    integer,
    symbol,  ///< an operator, a bracket, or the begin or end of a tag
    end
  };
  Kind kind = Kind::end;
  std::string value;
  int line = 1;
};

/// Splits a template as Jinja's lexer does with trim_blocks and lstrip_blocks. The last token is
/// `end`. @throws SyntaxError
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace tessera::data::detail
