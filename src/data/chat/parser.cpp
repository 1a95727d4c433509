#include "chat/syntax.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <utility>

#include "chat/interpreter.hpp"

namespace tessera::data::detail {
namespace {

using Kind = Node::Kind;
constexpr int deepest_expression = 150;

/// Binary operators in the order of their precedence, with Jinja's: `~` binds tighter than `+`.
constexpr std::array<std::array<std::string_view, 8>, 6> operators{{
    {"or"},
    {"and"},
    {"==", "!=", "<", "<=", ">", ">=", "in", "not in"},
    {"+", "-"},
    {"~"},
    {"*", "/", "//", "%", "**"},
}};
constexpr std::size_t comparisons = 2;

/// A parser of recursive descent.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Syntax run() {
    Node body = parse_body({});
    return {std::move(body), has_generation_};
  }

 private:
  Token const& current() const { return tokens_[at_]; }
  Token const& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_name(std::string_view name) const {
    return is(Token::Kind::name) && current().value == name;
  }
  bool is_symbol(std::string_view name) const {
    return is(Token::Kind::symbol) && current().value == name;
  }
  bool takes_name(std::string_view name) { return is_name(name) && ++at_ > 0; }
  bool takes_symbol(std::string_view symbol) { return is_symbol(symbol) && ++at_ > 0; }

  [[noreturn]] void fail(std::string const& message) const {
    throw SyntaxError{current().line, message};
  }
  [[noreturn]] void fail_before(std::string const& expected) const {
    std::string const found =
        is(Token::Kind::end) ? "the end of the template" : "'" + current().value + "'";
    fail(expected + " is expected before " + found);
  }
  [[noreturn]] void refuse(std::string const& what) const {
    fail(what + " is not supported in chat templates");
  }
  void expect(std::string_view symbol) {
    if (!takes_symbol(symbol)) fail_before("'" + std::string(symbol) + "'");
  }
  std::string expect_name() {
    if (!is(Token::Kind::name)) fail_before("a name");
    return tokens_[at_++].value;
  }

  static void add(Node& parent, Node child) {
    parent.depth = std::max(parent.depth, child.depth + 1);
    if (parent.depth > deepest_expression)
      throw SyntaxError{parent.line, "the template is nested too deep"};
    parent.children.push_back(std::move(child));
  }
  static Node constant(int line, Value value) {
    Node out = make(Kind::constant, line, "");
    out.value = std::move(value);
    return out;
  }
  template <class... Children>
  static Node make(Kind kind, int line, std::string text, Children... children) {
    Node out;
    out.kind = kind;
    out.line = line;
    out.text = std::move(text);
    (add(out, std::move(children)), ...);
    return out;
  }

  Level deeper() {
    if (level_ == deepest_expression) fail("the template is nested too deep");
    return Level(level_);
  }

  // Statements

  /// Statements up to a tag of @p ends, which is taken with its name; to the end without ends.
  Node parse_body(std::initializer_list<std::string_view> ends) {
    Level const level = deeper();
    Node out = make(Kind::body, current().line, "");
    while (true) {
      int const line = current().line;
      if (is(Token::Kind::data)) {
        add(out, make(Kind::data, line, tokens_[at_++].value));
      } else if (takes_symbol("{{")) {
        add(out, make(Kind::output, line, "", parse_expression()));
        expect("}}");
      } else if (takes_symbol("{%")) {
        if (std::ranges::any_of(ends, [&](auto end) { return is_name(end); })) {
          closed_by_ = tokens_[at_++].value;
          return out;
        }
        add(out, parse_statement());
        expect("%}");
      } else if (ends.size() == 0) {
        return out;
      } else {
        fail_before("{% " + std::string(*(ends.end() - 1)) + " %}");
      }
    }
  }
  Node parse_block(std::initializer_list<std::string_view> ends) {
    expect("%}");
    return parse_body(ends);
  }

  Node parse_statement() {
    int const line = current().line;
    std::string const tag = expect_name();
    if (tag == "for") return parse_for(line);
    if (tag == "if") return parse_if(line);
    if (tag == "set") return parse_set(line);
    if (tag == "macro") return parse_macro(line);
    if (tag == "generation") {
      has_generation_ = true;
      return make(Kind::generation, line, "", parse_outside_loops("endgeneration"));
    }
    if (tag != "break" && tag != "continue")
      throw SyntaxError{line, "the tag {% " + tag + " %} is not supported in chat templates"};
    if (loops_ == 0) throw SyntaxError{line, "{% " + tag + " %} is outside of a loop"};
    return make(tag == "break" ? Kind::break_loop : Kind::continue_loop, line, "");
  }

  /// A body that cannot break loops around it.
  Node parse_outside_loops(std::string_view end) {
    int const loops = std::exchange(loops_, 0);
    Node body = parse_block({end});
    loops_ = loops;
    return body;
  }

  Node parse_macro(int line) {
    Node out = make(Kind::macro, line, expect_name());
    expect("(");
    while (!takes_symbol(")")) {
      if (!out.children.empty()) expect(",");
      Node parameter = make(Kind::parameter, line, expect_name());
      add(parameter, takes_symbol("=") ? parse_expression() : Node());
      add(out, std::move(parameter));
    }
    add(out, parse_outside_loops("endmacro"));
    return out;
  }

  Node parse_for(int line) {
    Node out = make(Kind::loop, line, "", parse_target());
    if (!takes_name("in")) fail_before("'in'");
    add(out, parse_binary());
    add(out, takes_name("if") ? parse_expression() : Node());
    if (is_name("recursive")) refuse("a recursive loop");
    ++loops_;
    add(out, parse_block({"else", "endfor"}));
    --loops_;
    add(out, closed_by_ == "else" ? parse_block({"endfor"}) : Node());
    return out;
  }

  Node parse_if(int line) {
    Node out = make(Kind::condition, line, "");
    do {
      add(out, parse_expression());
      add(out, parse_block({"elif", "else", "endif"}));
    } while (closed_by_ == "elif");
    if (closed_by_ == "else") add(out, parse_block({"endif"}));
    return out;
  }

  Node parse_set(int line) {
    Node out = make(Kind::assignment, line, "", parse_target());
    add(out, takes_symbol("=") ? parse_tuple() : parse_block({"endset"}));
    return out;
  }

  /// A name, a member of a namespace, or several of them.
  Node parse_target() {
    Node all = make(Kind::tuple, current().line, "");
    do {
      int const line = current().line;
      Node target = make(Kind::name, line, expect_name());
      if (takes_symbol(".")) target = make(Kind::attribute, line, expect_name(), std::move(target));
      add(all, std::move(target));
    } while (takes_symbol(","));
    if (all.children.size() > 1) return all;
    Node only = std::move(all.children[0]);
    return only;
  }

  // Expressions

  Node parse_tuple() {
    Node first = parse_expression();
    if (!is_symbol(",")) return first;
    int const line = first.line;
    Node out = make(Kind::tuple, line, "", std::move(first));
    while (takes_symbol(",") && !is_symbol(")") && !is_symbol("%}")) add(out, parse_expression());
    return out;
  }

  Node parse_expression() {
    Level const level = deeper();
    Node value = parse_binary();
    while (takes_name("if")) {
      Node test = parse_binary();
      Node otherwise = takes_name("else") ? parse_expression() : Node();
      int const line = value.line;
      value = make(Kind::conditional, line, "", std::move(test), std::move(value),
                   std::move(otherwise));
    }
    return value;
  }

  /// An operator of a level of precedence.
  std::optional<std::string> takes_operator(std::size_t precedence) {
    if (!is(Token::Kind::name) && !is(Token::Kind::symbol)) return {};
    bool const negated = is_name("not") && following().value == "in";
    std::string name = negated ? "not in" : current().value;
    if (std::ranges::find(operators[precedence], name) == operators[precedence].end()) return {};
    at_ += negated ? 2 : 1;
    return name;
  }

  Node parse_binary(std::size_t precedence = 0) {
    if (precedence == operators.size()) return parse_unary(true);
    if (precedence == comparisons && is_name("not")) return parse_not();
    int const line = current().line;
    Node left = parse_binary(precedence + 1);
    bool chained = false;
    while (auto const name = takes_operator(precedence)) {
      if (precedence == comparisons && std::exchange(chained, true))
        refuse("a chain of comparisons");
      if (*name == "/" || *name == "**") refuse("the operator " + *name);
      left = make(Kind::binary, line, *name, std::move(left), parse_binary(precedence + 1));
    }
    return left;
  }

  Node parse_not() {
    Level const level = deeper();
    int const line = tokens_[at_++].line;
    return make(Kind::unary, line, "not", parse_binary(comparisons));
  }

  Node parse_unary(bool filters) {
    Level const level = deeper();
    int const line = current().line;
    std::string const sign = is_symbol("-") || is_symbol("+") ? tokens_[at_++].value : "";
    Node out = sign.empty() ? parse_primary() : make(Kind::unary, line, sign, parse_unary(false));
    out = parse_postfix(std::move(out));
    while (filters) {
      if (takes_symbol("|"))
        out = parse_builtin(Builtin::Kind::filter, std::move(out));
      else if (takes_name("is"))
        out = parse_test(std::move(out));
      else
        break;
    }
    return out;
  }

  Node parse_primary() {
    Token const& token = current();
    if (is(Token::Kind::name)) return parse_name();
    if (is(Token::Kind::integer)) return parse_integer();
    if (is(Token::Kind::string)) {
      std::string text;
      while (is(Token::Kind::string)) text += tokens_[at_++].value;
      return constant(token.line, make_constant(std::move(text)));
    }
    if (takes_symbol("(")) {
      if (takes_symbol(")")) return make(Kind::tuple, token.line, "");
      Node out = parse_tuple();
      expect(")");
      return out;
    }
    if (takes_symbol("[")) return parse_items("]", make(Kind::list, token.line, ""));
    if (takes_symbol("{")) return parse_items("}", make(Kind::dict, token.line, ""));
    fail_before("an expression");
  }

  Node parse_name() {
    auto const& [kind, name, line] = tokens_[at_++];
    if (name == "none" || name == "None") return constant(line, Value::none());
    if (name == "true" || name == "True") return constant(line, Value(true));
    if (name == "false" || name == "False") return constant(line, Value(false));
    return make(Kind::name, line, name);
  }

  Node parse_integer() {
    auto const& [kind, digits, line] = tokens_[at_++];
    std::int64_t number = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
      throw SyntaxError{line, digits + " is out of range"};
    return constant(line, Value(number));
  }

  /// Calls @p parse_element for each of the elements up to @p end, with commas between them.
  template <class ParseElement>
  void parse_list(std::string_view end, ParseElement parse_element) {
    while (!takes_symbol(end)) {
      parse_element();
      if (!is_symbol(end)) expect(",");
    }
  }

  Node parse_items(std::string_view end, Node out) {
    parse_list(end, [&] {
      add(out, parse_expression());
      if (out.kind != Kind::dict) return;
      expect(":");
      add(out, parse_expression());
    });
    return out;
  }

  Node parse_postfix(Node out) {
    while (true) {
      int const line = current().line;
      if (takes_symbol("."))
        out = make(Kind::attribute, line, expect_name(), std::move(out));
      else if (takes_symbol("["))
        out = parse_subscript(std::move(out), line);
      else if (is_symbol("("))
        out = parse_arguments(make(Kind::call, line, "", std::move(out)));
      else
        return out;
    }
  }

  Node parse_subscript(Node value, int line) {
    Node bounds[3];
    std::size_t colons = 0;
    for (auto& bound : bounds) {
      if (!is_symbol(":") && !is_symbol("]")) bound = parse_expression();
      if (colons == 2 || !takes_symbol(":")) break;
      ++colons;
    }
    if (is_symbol(",")) refuse("a tuple as an index");
    if (colons == 0 && bounds[0].kind == Kind::missing) fail_before("an index");
    expect("]");
    if (colons == 0) return make(Kind::item, line, "", std::move(value), std::move(bounds[0]));
    return make(Kind::slice, line, "", std::move(value), std::move(bounds[0]), std::move(bounds[1]),
                std::move(bounds[2]));
  }

  /// The arguments of a call, which follow the children that @p out has.
  Node parse_arguments(Node out) {
    expect("(");
    bool named = false;
    parse_list(")", [&] {
      if (is_symbol("*") || is_symbol("**")) refuse("a call with * or **");
      int const line = current().line;
      if (is(Token::Kind::name) && following().kind == Token::Kind::symbol &&
          following().value == "=") {
        named = true;
        std::string name = expect_name();
        expect("=");
        add(out, make(Kind::keyword, line, std::move(name), parse_expression()));
      } else if (named) {
        fail_before("a keyword");
      } else {
        add(out, parse_expression());
      }
    });
    return out;
  }

  /// A filter or a test of a value.
  Node parse_builtin(Builtin::Kind kind, Node value) {
    int const line = current().line;
    std::string const name = expect_name();
    Node out = make(Kind::apply, line, "", std::move(value));
    out.builtin = find_builtin(kind, name);
    if (!out.builtin) throw SyntaxError{line, unknown(kind, name)};
    return is_symbol("(") ? parse_arguments(std::move(out)) : out;
  }

  Node parse_test(Node value) {
    int const line = current().line;
    bool const negated = takes_name("not");
    Node out = parse_builtin(Builtin::Kind::test, std::move(value));
    return negated ? make(Kind::unary, line, "not", std::move(out)) : out;
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
