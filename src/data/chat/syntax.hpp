#pragma once
/// Syntax trees of templates, and the parser that builds them.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/lexer.hpp"

namespace tessera::data::detail {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    undefined,  ///< the missing `else` of a conditional
    none,
    boolean,  ///< `number` is 0 or 1
    integer,
    real,
    text,  ///< `name` is its value
    name,
    attribute,   ///< operands[0].name
    item,        ///< operands[0][operands[1]]
    slice,       ///< operands[0][operands[1]:operands[2]:operands[3]]; null where left out
    call,        ///< operands[0](the other operands, keywords)
    filter,      ///< operands[0] | name(the other operands, keywords)
    test,        ///< operands[0] is name(the other operands, keywords)
    unary,       ///< name: not, -, +
    binary,      ///< name: +, -, *, /, //, %, **
    both,        ///< operands[0] and operands[1]
    either,      ///< operands[0] or operands[1]
    comparison,  ///< operands[0] names[0] operands[1] names[1] operands[2] ...
    concatenation,
    conditional,  ///< operands[1] if operands[0] else operands[2]
    list,
    tuple,
    dict  ///< keys and values in turn
  };
  Kind kind;
  int line = 1;
  int depth = 1;  ///< levels of the tree
  std::string name;
  std::int64_t number = 0;
  double real = 0;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  std::vector<std::string> names;  ///< operators of a comparison
};

struct Statement;
using Body = std::vector<Statement>;

/// A parameter of a macro; the default is null without one.
struct Parameter {
  std::string name;
  ExpressionPtr standard;
};

struct Statement {
  enum class Kind {
    text,
    output,
    loop,          ///< for target in value if test: body; otherwise
    condition,     ///< branches; otherwise
    assignment,    ///< set target = value
    block_set,     ///< set target | filters: body; `value` has the filters over a null operand
    macro,         ///< name, parameters, body
    call_block,    ///< call(parameters) value: body
    filter_block,  ///< filter value: body
    generation,
    break_loop,
    continue_loop
  };
  Kind kind;
  int line = 1;
  std::string text;  ///< text, or name of a macro
  ExpressionPtr target, value, test;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<Parameter> parameters;
  Body body, otherwise;
};

/// A parsed template.
struct Syntax {
  Body body;
  bool has_generation = false;
};

/// @throws SyntaxError
Syntax parse_template(std::string_view source);

}  // namespace tessera::data::detail
