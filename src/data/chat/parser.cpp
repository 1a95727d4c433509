#include "chat/syntax.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using Kind = Expression::Kind;
constexpr int max_depth = 150;

/// A parser of recursive descent, with the precedence of Jinja's: `~` binds tighter than `+`.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Syntax run() {
    Syntax out;
    out.body = parse_body({});
    out.has_generation = has_generation_;
    return out;
  }

 private:
  Token const& current() const { return tokens_[at_]; }
  Token const& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_name(std::string_view name) const { return is(Token::Kind::name) && is_value(name); }
  bool is_symbol(std::string_view name) const { return is(Token::Kind::symbol) && is_value(name); }
  bool is_value(std::string_view value) const { return current().value == value; }
  bool takes_name(std::string_view name) { return is_name(name) && ++at_ > 0; }
  bool takes_symbol(std::string_view symbol) { return is_symbol(symbol) && ++at_ > 0; }

  [[noreturn]] void fail(std::string const& expected) const {
    std::string const found = is(Token::Kind::end)            ? "the end of the template"
                              : is(Token::Kind::block_end)    ? "%}"
                              : is(Token::Kind::variable_end) ? "}}"
                                                              : "'" + current().value + "'";
    throw SyntaxError{current().line, expected + " is expected before " + found};
  }
  [[noreturn]] void refuse(std::string const& what) const {
    throw SyntaxError{current().line, what + " is not supported in chat templates"};
  }
  void expect(std::string_view symbol) {
    if (!takes_symbol(symbol)) fail("'" + std::string(symbol) + "'");
  }
  void expect_end() {
    if (!is(Token::Kind::block_end)) fail("'%}'");
    ++at_;
  }
  std::string expect_identifier() {
    if (!is(Token::Kind::name)) fail("a name");
    return tokens_[at_++].value;
  }

  /// Makes an expression of @p operands, and bounds the depth of its tree.
  ExpressionPtr make(Kind kind, std::string name, int line,
                     std::vector<ExpressionPtr> operands = {}) const {
    auto out = std::make_unique<Expression>();
    out->kind = kind;
    out->name = std::move(name);
    out->line = line;
    out->operands = std::move(operands);
    for (auto const& operand : out->operands)
      if (operand) out->depth = std::max(out->depth, operand->depth + 1);
    if (out->depth > max_depth) throw SyntaxError{line, "an expression is nested too deep"};
    return out;
  }
  template <class... Operands>
  ExpressionPtr combine(Kind kind, std::string name, int line, Operands... operands) const {
    std::vector<ExpressionPtr> list;
    (list.push_back(std::move(operands)), ...);
    return make(kind, std::move(name), line, std::move(list));
  }

  /// Counts levels of recursion while it lives.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser.level_ > max_depth)
        throw SyntaxError{parser.current().line, "the template is nested too deep"};
    }
    Level(Level const&) = delete;
    Level& operator=(Level const&) = delete;
    ~Level() { --parser_.level_; }

   private:
    Parser& parser_;
  };

  // Statements

  /// Statements up to a tag of @p ends, which is taken with its name; to the end without ends.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    Level const level(*this);
    Body out;
    while (true) {
      int const line = current().line;
      switch (current().kind) {
        case Token::Kind::text:
          out.push_back(statement(Statement::Kind::text, line));
          out.back().text = tokens_[at_++].value;
          break;
        case Token::Kind::variable_begin:
          ++at_;
          out.push_back(statement(Statement::Kind::output, line));
          out.back().value = parse_tuple();
          if (!is(Token::Kind::variable_end)) fail("'}}'");
          ++at_;
          break;
        case Token::Kind::block_begin:
          ++at_;
          if (std::ranges::any_of(ends, [&](auto end) { return is_name(end); })) {
            closed_by_ = tokens_[at_++].value;
            return out;
          }
          parse_statement(out);
          expect_end();
          break;
        default:
          if (ends.size() == 0) return out;
          fail("{% " + std::string(*(ends.end() - 1)) + " %}");
      }
    }
  }
  static Statement statement(Statement::Kind kind, int line) {
    Statement out;
    out.kind = kind;
    out.line = line;
    return out;
  }
  Body parse_block(std::initializer_list<std::string_view> ends) {
    takes_symbol(":");
    expect_end();
    return parse_body(ends);
  }

  void parse_statement(Body& out) {
    int const line = current().line;
    std::string const tag = expect_identifier();
    using S = Statement::Kind;
    if (tag == "for") return out.push_back(parse_for(line));
    if (tag == "if") return out.push_back(parse_if(line));
    if (tag == "set") return out.push_back(parse_set(line));
    if (tag == "macro") {
      out.push_back(statement(S::macro, line));
      out.back().text = expect_identifier();
      return parse_function(out.back(), "endmacro");
    }
    if (tag == "call") {
      out.push_back(statement(S::call_block, line));
      if (is_symbol("(")) out.back().parameters = parse_parameters();
      out.back().value = parse_expression();
      if (out.back().value->kind != Kind::call) fail("a call");
      return parse_function(out.back(), "endcall");
    }
    if (tag == "generation") {
      has_generation_ = true;
      out.push_back(statement(S::generation, line));
      return parse_function(out.back(), "endgeneration");
    }
    if (tag == "filter") {
      out.push_back(statement(S::filter_block, line));
      out.back().value = parse_filter(nullptr);
      while (is_symbol("|")) out.back().value = parse_next_filter(std::move(out.back().value));
      out.back().body = parse_block({"endfilter"});
      return;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) throw SyntaxError{line, "{% " + tag + " %} is outside of a loop"};
      return out.push_back(statement(tag == "break" ? S::break_loop : S::continue_loop, line));
    }
    if (tag == "print") {
      do {
        out.push_back(statement(S::output, line));
        out.back().value = parse_expression();
      } while (takes_symbol(","));
      return;
    }
    throw SyntaxError{line, "the tag {% " + tag + " %} is not supported in chat templates"};
  }

  /// The rest of a macro, of a call or of a generation block. Loops outside are not seen inside.
  void parse_function(Statement& out, std::string_view end) {
    if (out.kind == Statement::Kind::macro) out.parameters = parse_parameters();
    int const loops = std::exchange(loops_, 0);
    out.body = parse_block({end});
    loops_ = loops;
  }

  std::vector<Parameter> parse_parameters() {
    std::vector<Parameter> out;
    expect("(");
    while (!is_symbol(")")) {
      if (!out.empty()) expect(",");
      Parameter parameter{expect_identifier(), nullptr};
      if (takes_symbol("="))
        parameter.standard = parse_expression();
      else if (!out.empty() && out.back().standard)
        fail("a default for '" + parameter.name + "', which follows parameters with one,");
      out.push_back(std::move(parameter));
    }
    expect(")");
    return out;
  }

  Statement parse_for(int line) {
    Statement out = statement(Statement::Kind::loop, line);
    out.target = parse_target();
    if (!takes_name("in")) fail("'in'");
    out.value = parse_tuple(Conditionals::no);
    if (takes_name("if")) out.test = parse_expression();
    if (is_name("recursive")) refuse("a recursive loop");
    ++loops_;
    out.body = parse_block({"else", "endfor"});
    --loops_;
    if (closed_by_ == "else") out.otherwise = parse_block({"endfor"});
    return out;
  }

  Statement parse_if(int line) {
    Statement out = statement(Statement::Kind::condition, line);
    do {
      ExpressionPtr test = parse_tuple(Conditionals::no);
      out.branches.emplace_back(std::move(test), parse_block({"elif", "else", "endif"}));
    } while (closed_by_ == "elif");
    if (closed_by_ == "else") out.otherwise = parse_block({"endif"});
    return out;
  }

  Statement parse_set(int line) {
    Statement out = statement(Statement::Kind::assignment, line);
    out.target = parse_target();
    if (takes_symbol("=")) {
      out.value = parse_tuple();
      return out;
    }
    out.kind = Statement::Kind::block_set;
    while (is_symbol("|")) out.value = parse_next_filter(std::move(out.value));
    out.body = parse_block({"endset"});
    return out;
  }

  /// A name, an attribute of a namespace, or several of them.
  ExpressionPtr parse_target() {
    Level const level(*this);
    int const line = current().line;
    std::vector<ExpressionPtr> targets;
    bool tuple = false;
    do {
      if (tuple && (is_name("in") || is_symbol("=") || is_symbol(")"))) break;
      if (takes_symbol("(")) {
        targets.push_back(parse_target());
        expect(")");
        continue;
      }
      targets.push_back(make(Kind::name, expect_identifier(), line));
      if (takes_symbol("."))
        targets.back() =
            combine(Kind::attribute, expect_identifier(), line, std::move(targets.back()));
    } while (takes_symbol(",") && (tuple = true));
    if (!tuple) return std::move(targets[0]);
    return make(Kind::tuple, "", line, std::move(targets));
  }

  // Expressions

  enum class Conditionals { no, yes };
  bool ends_tuple() const {
    return is(Token::Kind::variable_end) || is(Token::Kind::block_end) || is_symbol(")");
  }
  ExpressionPtr parse_tuple(Conditionals conditionals = Conditionals::yes) {
    int const line = current().line;
    auto const each = [&] {
      return conditionals == Conditionals::yes ? parse_expression() : parse_or();
    };
    ExpressionPtr first = each();
    if (!is_symbol(",")) return first;
    std::vector<ExpressionPtr> items;
    items.push_back(std::move(first));
    while (takes_symbol(",") && !ends_tuple()) items.push_back(each());
    return make(Kind::tuple, "", line, std::move(items));
  }

  ExpressionPtr parse_expression() {
    Level const level(*this);
    int const line = current().line;
    ExpressionPtr value = parse_or();
    while (takes_name("if")) {
      ExpressionPtr test = parse_or();
      ExpressionPtr other =
          takes_name("else") ? parse_expression() : make(Kind::undefined, "", line);
      value =
          combine(Kind::conditional, "", line, std::move(test), std::move(value), std::move(other));
    }
    return value;
  }
  ExpressionPtr parse_or() {
    ExpressionPtr left = parse_and();
    for (int line = current().line; takes_name("or"); line = current().line)
      left = combine(Kind::either, "", line, std::move(left), parse_and());
    return left;
  }
  ExpressionPtr parse_and() {
    ExpressionPtr left = parse_not();
    for (int line = current().line; takes_name("and"); line = current().line)
      left = combine(Kind::both, "", line, std::move(left), parse_not());
    return left;
  }
  ExpressionPtr parse_not() {
    Level const level(*this);
    int const line = current().line;
    if (takes_name("not")) return combine(Kind::unary, "not", line, parse_not());
    return parse_comparison();
  }

  ExpressionPtr parse_comparison() {
    int const line = current().line;
    std::vector<ExpressionPtr> operands;
    std::vector<std::string> names;
    operands.push_back(parse_sum());
    while (true) {
      if (takes_name("in")) {
        names.emplace_back("in");
      } else if (is_name("not") && following().kind == Token::Kind::name &&
                 following().value == "in") {
        at_ += 2;
        names.emplace_back("not in");
      } else if (is_symbol("==") || is_symbol("!=") || is_symbol("<") || is_symbol("<=") ||
                 is_symbol(">") || is_symbol(">=")) {
        names.push_back(tokens_[at_++].value);
      } else {
        break;
      }
      operands.push_back(parse_sum());
    }
    if (names.empty()) return std::move(operands[0]);
    ExpressionPtr out = make(Kind::comparison, "", line, std::move(operands));
    out->names = std::move(names);
    return out;
  }
  ExpressionPtr parse_sum() {
    ExpressionPtr left = parse_concatenation();
    while (is_symbol("+") || is_symbol("-")) {
      Token const& symbol = tokens_[at_++];
      left =
          combine(Kind::binary, symbol.value, symbol.line, std::move(left), parse_concatenation());
    }
    return left;
  }
  ExpressionPtr parse_concatenation() {
    int const line = current().line;
    std::vector<ExpressionPtr> parts;
    parts.push_back(parse_product());
    while (takes_symbol("~")) parts.push_back(parse_product());
    if (parts.size() == 1) return std::move(parts[0]);
    return make(Kind::concatenation, "", line, std::move(parts));
  }
  ExpressionPtr parse_product() {
    ExpressionPtr left = parse_power();
    while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
      Token const& symbol = tokens_[at_++];
      left = combine(Kind::binary, symbol.value, symbol.line, std::move(left), parse_power());
    }
    return left;
  }
  ExpressionPtr parse_power() {
    ExpressionPtr left = parse_unary(Filters::yes);
    for (int line = current().line; takes_symbol("**"); line = current().line)
      left = combine(Kind::binary, "**", line, std::move(left), parse_unary(Filters::yes));
    return left;
  }

  enum class Filters { no, yes };
  ExpressionPtr parse_unary(Filters filters) {
    Level const level(*this);
    int const line = current().line;
    ExpressionPtr out;
    if (is_symbol("-") || is_symbol("+")) {
      std::string const sign = tokens_[at_++].value;
      out = combine(Kind::unary, sign, line, parse_unary(Filters::no));
    } else {
      out = parse_primary();
    }
    out = parse_postfix(std::move(out));
    if (filters == Filters::no) return out;
    while (true) {
      if (is_symbol("|"))
        out = parse_next_filter(std::move(out));
      else if (takes_name("is"))
        out = parse_test(std::move(out));
      else if (is_symbol("("))
        out = parse_call(std::move(out));
      else
        return out;
    }
  }

  ExpressionPtr parse_primary() {
    Token const& token = current();
    switch (token.kind) {
      case Token::Kind::name:
        ++at_;
        if (token.value == "true" || token.value == "True" || token.value == "false" ||
            token.value == "False") {
          ExpressionPtr out = make(Kind::boolean, "", token.line);
          out->number = token.value[0] == 't' || token.value[0] == 'T';
          return out;
        }
        if (token.value == "none" || token.value == "None") return make(Kind::none, "", token.line);
        return make(Kind::name, token.value, token.line);
      case Token::Kind::string: {
        std::string text;
        while (is(Token::Kind::string)) text += tokens_[at_++].value;
        return make(Kind::text, std::move(text), token.line);
      }
      case Token::Kind::integer:
      case Token::Kind::real:
        return parse_number();
      default:
        break;
    }
    if (takes_symbol("(")) {
      if (takes_symbol(")")) return make(Kind::tuple, "", token.line);
      ExpressionPtr out = parse_tuple();
      expect(")");
      return out;
    }
    if (takes_symbol("[")) return parse_items("]", Kind::list, token.line);
    if (takes_symbol("{")) return parse_items("}", Kind::dict, token.line);
    fail("an expression");
  }

  ExpressionPtr parse_number() {
    Token const& token = tokens_[at_++];
    bool const real = token.kind == Token::Kind::real;
    ExpressionPtr out = make(real ? Kind::real : Kind::integer, "", token.line);
    char const *begin = token.value.data(), *end = begin + token.value.size();
    auto const read =
        real ? std::from_chars(begin, end, out->real) : std::from_chars(begin, end, out->number);
    if (read.ec != std::errc()) throw SyntaxError{token.line, token.value + " is out of range"};
    return out;
  }

  ExpressionPtr parse_items(std::string_view end, Kind kind, int line) {
    std::vector<ExpressionPtr> items;
    while (!is_symbol(end)) {
      if (!items.empty()) expect(",");
      if (is_symbol(end)) break;
      items.push_back(parse_expression());
      if (kind != Kind::dict) continue;
      expect(":");
      items.push_back(parse_expression());
    }
    expect(end);
    return make(kind, "", line, std::move(items));
  }

  ExpressionPtr parse_postfix(ExpressionPtr out) {
    while (true) {
      int const line = current().line;
      if (takes_symbol(".")) {
        if (is(Token::Kind::integer))
          out = combine(Kind::item, "", line, std::move(out), parse_number());
        else
          out = combine(Kind::attribute, expect_identifier(), line, std::move(out));
      } else if (takes_symbol("[")) {
        out = parse_subscript(std::move(out), line);
      } else if (is_symbol("(")) {
        out = parse_call(std::move(out));
      } else {
        return out;
      }
    }
  }

  ExpressionPtr parse_subscript(ExpressionPtr value, int line) {
    ExpressionPtr bounds[3];
    bool slice = false;
    for (auto& bound : bounds) {
      if (!is_symbol(":") && !is_symbol("]")) bound = parse_expression();
      if (!is_symbol(":")) break;
      slice = true;
      if (&bound != &bounds[2]) ++at_;
    }
    if (!slice && !bounds[0]) fail("an index");
    if (is_symbol(",")) refuse("a tuple as an index");
    expect("]");
    if (!slice) return combine(Kind::item, "", line, std::move(value), std::move(bounds[0]));
    return combine(Kind::slice, "", line, std::move(value), std::move(bounds[0]),
                   std::move(bounds[1]), std::move(bounds[2]));
  }

  /// The arguments of a call, which follow the operands that @p out has.
  void parse_arguments(Expression& out) {
    expect("(");
    bool first = true;
    while (!is_symbol(")")) {
      if (!std::exchange(first, false)) expect(",");
      if (is_symbol(")")) break;
      if (is_symbol("*") || is_symbol("**")) refuse("a call with * or **");
      if (is(Token::Kind::name) && following().kind == Token::Kind::symbol &&
          following().value == "=") {
        std::string name = expect_identifier();
        ++at_;
        out.keywords.emplace_back(std::move(name), parse_expression());
        out.depth = std::max(out.depth, out.keywords.back().second->depth + 1);
      } else {
        if (!out.keywords.empty()) fail("a keyword");
        out.operands.push_back(parse_expression());
        out.depth = std::max(out.depth, out.operands.back()->depth + 1);
      }
    }
    expect(")");
    if (out.depth > max_depth) throw SyntaxError{out.line, "an expression is nested too deep"};
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    ExpressionPtr out = combine(Kind::call, "", current().line, std::move(callee));
    parse_arguments(*out);
    return out;
  }
  ExpressionPtr parse_next_filter(ExpressionPtr value) {
    expect("|");
    return parse_filter(std::move(value));
  }
  ExpressionPtr parse_filter(ExpressionPtr value) {
    int const line = current().line;
    ExpressionPtr out = combine(Kind::filter, expect_identifier(), line, std::move(value));
    if (is_symbol("(")) parse_arguments(*out);
    return out;
  }

  ExpressionPtr parse_test(ExpressionPtr value) {
    int const line = current().line;
    bool const negated = takes_name("not");
    ExpressionPtr out = combine(Kind::test, expect_identifier(), line, std::move(value));
    bool const starts = is(Token::Kind::name) || is(Token::Kind::string) ||
                        is(Token::Kind::integer) || is(Token::Kind::real) || is_symbol("[") ||
                        is_symbol("{");
    if (is_symbol("(")) {
      parse_arguments(*out);
    } else if (starts && !is_name("else") && !is_name("or") && !is_name("and")) {
      if (is_name("is")) refuse("a test of a test");
      out->operands.push_back(parse_postfix(parse_primary()));
      out->depth = std::max(out->depth, out->operands.back()->depth + 1);
    }
    return negated ? combine(Kind::unary, "not", line, std::move(out)) : std::move(out);
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0, loops_ = 0;
  bool has_generation_ = false;
  std::string closed_by_;  ///< the tag that ended the last body
};

}  // namespace

Syntax parse_template(std::string_view source) { return Parser(tokenize_template(source)).run(); }

}  // namespace tessera::data::detail
