#include "interchange/detail/pickle_reader.hpp"

#include <bit>
#include <set>

#include "format/detail/json_reader.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {

/// The stack machine of the format. Every opcode takes constant time but for what it moves from the
/// stack.
class PickleMachine {
 public:
  explicit PickleMachine(Pickle& pickle) : p_(pickle) { p_.nodes_.emplace_back(); }

  void run() {
    while (!step(byte())) {
    }
    if (stack_.empty()) fail("ends without a value");
    p_.root_ = stack_.back();
    p_.text_.resize(at_);
    p_.text_.shrink_to_fit();
  }

 private:
  using Id = Pickle::Id;
  using Kind = Pickle::Kind;
  using Node = Pickle::Node;

  [[noreturn]] void fail(std::string const& what) const {
    throw DataError(concat(p_.source_, ": the pickle ", what, " at byte ", at_,
                           "; the file is damaged or not written by torch.save"));
  }

  void need(std::size_t bytes) const {
    if (bytes > p_.text_.size() - at_) fail("is truncated");
  }
  unsigned byte() {
    need(1);
    return static_cast<unsigned char>(p_.text_[at_++]);
  }
  std::uint64_t little(int bytes) {
    need(static_cast<std::size_t>(bytes));
    std::uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(p_.text_[at_ + static_cast<std::size_t>(i)]);
    at_ += static_cast<std::size_t>(bytes);
    return value;
  }
  Pickle::Range range(std::uint64_t bytes) {
    if (bytes > p_.text_.size()) fail("is truncated");
    need(static_cast<std::size_t>(bytes));
    Pickle::Range const out{static_cast<std::uint32_t>(at_), static_cast<std::uint32_t>(bytes)};
    at_ += static_cast<std::size_t>(bytes);
    return out;
  }
  Pickle::Range line() {
    auto const end = p_.text_.find('\n', at_);
    if (end == std::string::npos) fail("is truncated");
    auto const out = range(end - at_);
    ++at_;
    return out;
  }

  Node& push(Kind kind) {
    if (p_.nodes_.size() >= Pickle::most_values)
      fail(concat("has more than ", Pickle::most_values, " values"));
    push_id(static_cast<Id>(p_.nodes_.size()));
    Node& node = p_.nodes_.emplace_back();
    node.kind = kind;
    return node;
  }
  /// Every reference anywhere was on the stack once.
  void push_id(Id id) {
    if (++references_ > Pickle::most_references)
      fail(concat("has more than ", Pickle::most_references, " references"));
    stack_.push_back(id);
  }
  void push_integer(std::int64_t value) { push(Kind::integer).integer = value; }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Id pop() {
    if (stack_.size() <= floor()) fail("takes a value from an empty stack");
    Id const id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Id top() {
    if (stack_.size() <= floor()) fail("takes a value from an empty stack");
    return stack_.back();
  }
  /// Everything above the last mark.
  std::vector<Id> pop_mark() {
    if (marks_.empty()) fail("has no mark");
    auto const first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Id> out(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return out;
  }
  std::vector<Id> pop_several(int count) {
    std::vector<Id> out(static_cast<std::size_t>(count));
    for (std::size_t i = out.size(); i-- > 0;) out[i] = pop();
    return out;
  }
  void push_tuple(std::vector<Id> items) { push(Kind::tuple).items = std::move(items); }

  void extend(std::vector<Id> const& items, bool pairs) {
    Node& node = p_.nodes_[top()];
    bool const fits = node.kind == Kind::object || node.kind == (pairs ? Kind::dict : Kind::list);
    if (!fits || (pairs && items.size() % 2 != 0)) fail("adds members to what has none");
    node.items.insert(node.items.end(), items.begin(), items.end());
  }

  void call() {
    Id const arguments = pop(), callable = pop();
    if (p_.nodes_[callable].kind != Kind::global) fail("calls what is no global");
    Node& node = push(Kind::object);
    node.callable = callable;
    node.arguments = arguments;
  }
  void set_state() {
    Id const state = pop();
    Node& node = p_.nodes_[top()];
    if (node.kind != Kind::object) fail("gives a state to what is no object");
    node.state = state;
  }

  void remember(std::uint64_t key) {
    if (memo_.size() >= Pickle::most_values && !memo_.contains(key))
      fail("remembers too many values");
    memo_[key] = top();
  }
  void recall(std::uint64_t key) {
    auto const it = memo_.find(key);
    if (it == memo_.end()) fail(concat("recalls value ", key, ", which was not remembered,"));
    push_id(it->second);
  }

  void long_integer(std::uint64_t bytes) {
    auto const text = range(bytes);
    if (bytes > 8) {
      push(Kind::long_integer).text = text;
      return;
    }
    std::uint64_t value = 0;
    auto const view = p_.view(text);
    for (std::size_t i = view.size(); i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(view[i]);
    if (bytes > 0 && bytes < 8 && (static_cast<unsigned char>(view.back()) & 0x80))
      value |= ~std::uint64_t{0} << (8 * bytes);
    push_integer(static_cast<std::int64_t>(value));
  }
  void real() {
    need(8);
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | byte();
    push(Kind::real).real = std::bit_cast<double>(bits);
  }
  void text(std::uint64_t bytes) {
    auto const where = range(bytes);
    push(Kind::text).text = where;
  }
  void global() {
    auto const module = line(), name = line();
    Node& node = push(Kind::global);
    node.text = module;
    node.second = name;
  }

  using Action = void (*)(PickleMachine&);
  /// The opcodes that are read; STOP ends the loop that looks them up.
  static std::unordered_map<unsigned, Action> const& actions() {
    using M = PickleMachine;
    static std::unordered_map<unsigned, Action> const all{
        {0x80, [](M& m) { m.check_protocol(); }},              // PROTO
        {0x95, [](M& m) { m.little(8); }},                     // FRAME of protocol 4: a hint
        {'(', [](M& m) { m.mark(); }},                         // MARK
        {'}', [](M& m) { m.push(Kind::dict); }},               // EMPTY_DICT
        {']', [](M& m) { m.push(Kind::list); }},               // EMPTY_LIST
        {')', [](M& m) { m.push(Kind::tuple); }},              // EMPTY_TUPLE
        {'t', [](M& m) { m.push_tuple(m.pop_mark()); }},       // TUPLE
        {0x85, [](M& m) { m.push_tuple(m.pop_several(1)); }},  // TUPLE1
        {0x86, [](M& m) { m.push_tuple(m.pop_several(2)); }},  // TUPLE2
        {0x87, [](M& m) { m.push_tuple(m.pop_several(3)); }},  // TUPLE3
        {'a', [](M& m) { m.extend_by(1, false); }},            // APPEND
        {'s', [](M& m) { m.extend_by(2, true); }},             // SETITEM
        {'e', [](M& m) { m.extend_by_mark(false); }},          // APPENDS
        {'u', [](M& m) { m.extend_by_mark(true); }},           // SETITEMS
        {'q', [](M& m) { m.remember(m.byte()); }},             // BINPUT
        {'r', [](M& m) { m.remember(m.little(4)); }},          // LONG_BINPUT
        {0x94, [](M& m) { m.remember(m.memo_.size()); }},      // MEMOIZE of protocol 4
        {'h', [](M& m) { m.recall(m.byte()); }},               // BINGET
        {'j', [](M& m) { m.recall(m.little(4)); }},            // LONG_BINGET
        {'X', [](M& m) { m.text(m.little(4)); }},              // BINUNICODE
        {'B', [](M& m) { m.text(m.little(4)); }},              // BINBYTES
        {0x8c, [](M& m) { m.text(m.byte()); }},                // SHORT_BINUNICODE
        {'C', [](M& m) { m.text(m.byte()); }},                 // SHORT_BINBYTES
        {'J', [](M& m) { m.push_integer(static_cast<std::int32_t>(m.little(4))); }},  // BININT
        {'K', [](M& m) { m.push_integer(m.byte()); }},                                // BININT1
        {'M', [](M& m) { m.push_integer(static_cast<std::int64_t>(m.little(2))); }},  // BININT2
        {0x8a, [](M& m) { m.long_integer(m.byte()); }},                               // LONG1
        {0x8b, [](M& m) { m.long_integer(m.little(4)); }},                            // LONG4
        {'G', [](M& m) { m.real(); }},                                                // BINFLOAT
        {'N', [](M& m) { m.push_id(0); }},                                            // NONE
        {0x88, [](M& m) { m.push(Kind::boolean).integer = 1; }},                      // NEWTRUE
        {0x89, [](M& m) { m.push(Kind::boolean).integer = 0; }},                      // NEWFALSE
        {'c', [](M& m) { m.global(); }},                                              // GLOBAL
        {0x93, [](M& m) { m.stack_global(); }},  // STACK_GLOBAL
        {'R', [](M& m) { m.call(); }},           // REDUCE
        {0x81, [](M& m) { m.call(); }},          // NEWOBJ
        {'b', [](M& m) { m.set_state(); }},      // BUILD
        {'Q', [](M& m) { m.persistent(); }}};    // BINPERSID
    return all;
  }

  /// Executes one opcode. @return true at STOP
  bool step(unsigned opcode) {
    if (opcode == '.') return true;
    auto const action = actions().find(opcode);
    if (action == actions().end()) fail(concat("has opcode ", opcode, ", which is not read,"));
    action->second(*this);
    return false;
  }

  void check_protocol() {
    if (auto const protocol = byte(); protocol < 2 || protocol > 4)
      fail(concat("is of protocol ", protocol, "; 2 to 4 are read"));
  }
  void mark() {
    if (marks_.size() >= Pickle::most_values) fail("has too many marks");
    marks_.push_back(stack_.size());
  }
  void extend_by(int count, bool pairs) {
    auto const items = pop_several(count);
    extend(items, pairs);
  }
  void extend_by_mark(bool pairs) {
    auto const items = pop_mark();
    extend(items, pairs);
  }
  void persistent() {
    Id const arguments = pop();
    push(Kind::persistent).arguments = arguments;
  }
  void stack_global() {
    Id const name = pop(), module = pop();
    if (p_.nodes_[name].kind != Kind::text || p_.nodes_[module].kind != Kind::text)
      fail("names a global by what is no text");
    auto const first = p_.nodes_[module].text, second = p_.nodes_[name].text;
    Node& node = push(Kind::global);
    node.text = first;
    node.second = second;
  }

  Pickle& p_;
  std::size_t at_ = 0, references_ = 0;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Id> memo_;
};

Pickle::Pickle(std::string text, std::string source)
    : text_(std::move(text)), source_(std::move(source)) {
  TESSERA_VALIDATE(text_.size() <= largest, DataError, source_, ": the pickle has ", text_.size(),
                   " bytes; at most ", largest, " are read");
  PickleMachine(*this).run();
}

PickleValue Pickle::root() const { return {*this, root_}; }
PickleValue Pickle::value(Id id) const { return {*this, id}; }

namespace {

char const* kind_name(Pickle::Kind kind) {
  static constexpr char const* names[] = {"None",       "a truth value",
                                          "an integer", "a long integer",
                                          "a number",   "a text",
                                          "a tuple",    "a list",
                                          "a dict",     "a class or function",
                                          "an object",  "a reference to a storage"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace

void PickleValue::fail(std::string const& what) const {
  throw DataError(concat(pickle_->source_, ": ", what));
}

bool PickleValue::is_dict() const {
  return kind() == Kind::dict || is_call("collections", "OrderedDict");
}

bool PickleValue::is_global(std::string_view module, std::string_view name) const {
  return kind() == Kind::global && pickle_->view(node().text) == module &&
         pickle_->view(node().second) == name;
}

bool PickleValue::is_call(std::string_view module, std::string_view name) const {
  return kind() == Kind::object && (module.empty() || callable().is_global(module, name));
}

std::int64_t PickleValue::as_int() const {
  if (kind() != Kind::integer)
    fail(concat("an integer is expected, ", kind_name(kind()), " is there"));
  return node().integer;
}

double PickleValue::as_number() const {
  if (kind() == Kind::integer) return static_cast<double>(node().integer);
  if (kind() != Kind::real) fail(concat("a number is expected, ", kind_name(kind()), " is there"));
  return node().real;
}

bool PickleValue::as_bool() const {
  if (kind() != Kind::boolean)
    fail(concat("a truth value is expected, ", kind_name(kind()), " is there"));
  return node().integer != 0;
}

std::string PickleValue::as_text() const {
  if (kind() != Kind::text) fail(concat("a text is expected, ", kind_name(kind()), " is there"));
  return std::string(raw_text());
}

std::size_t PickleValue::size() const {
  if (!is_sequence()) fail(concat("a list is expected, ", kind_name(kind()), " is there"));
  return node().items.size();
}

PickleValue PickleValue::operator[](std::size_t i) const {
  if (i >= size()) fail(concat("element ", i, " of a list of ", size(), " is asked for"));
  return {*pickle_, node().items[i]};
}

std::size_t PickleValue::pairs() const {
  if (!is_dict()) fail(concat("a dict is expected, ", kind_name(kind()), " is there"));
  return node().items.size() / 2;
}

void PickleValue::check_members() const {
  std::set<std::string_view> keys;
  for (std::size_t i = 0; i < pairs(); ++i) {
    auto const key = pair_key(i);
    if (key.kind() != Kind::text)
      fail(concat("a dict has ", kind_name(key.kind()), " as key where a text is expected"));
    if (!keys.insert(key.raw_text()).second)
      fail(concat("'", printable(key.as_text()), "' is listed twice in a dict"));
  }
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  std::optional<PickleValue> found;
  for (std::size_t i = 0; i < pairs(); ++i)
    if (auto const k = pair_key(i); k.kind() == Kind::text && k.raw_text() == key)
      found = pair_value(i);
  return found;
}

PickleValue PickleValue::at(std::string_view key) const {
  auto const found = find(key);
  if (!found) fail(concat("there is no '", key, "'"));
  return *found;
}

std::string PickleValue::global_name() const {
  return printable(concat(pickle_->view(node().text), ".", pickle_->view(node().second)));
}

ConfigTree PickleValue::to_tree() const {
  std::size_t budget = 10'000;
  return to_tree(0, budget);
}

ConfigTree PickleValue::to_tree(int depth, std::size_t& budget) const {
  if (depth > 64) fail("values are nested deeper than 64 levels");
  if (budget-- == 0) fail("a record has more than 10000 values");
  switch (kind()) {
    case Kind::none:
      return nullptr;
    case Kind::boolean:
      return as_bool();
    case Kind::integer:
      return as_int();
    case Kind::real:
      return as_number();
    case Kind::text:
      return is_utf8(raw_text()) ? ConfigTree(as_text()) : ConfigTree(printable(as_text()));
    default:
      break;
  }
  if (is_sequence()) {
    ConfigTree out = ConfigTree::array();
    for (std::size_t i = 0; i < size(); ++i) out.push_back((*this)[i].to_tree(depth + 1, budget));
    return out;
  }
  if (!is_dict())
    return kind() == Kind::object ? ConfigTree("<" + callable().global_name() + ">")
                                  : ConfigTree(concat("<", kind_name(kind()), ">"));
  ConfigTree out = ConfigTree::object();
  for (std::size_t i = 0; i < pairs(); ++i)
    if (pair_key(i).kind() == Kind::text && is_utf8(pair_key(i).raw_text()))
      out.set(pair_key(i).as_text(), pair_value(i).to_tree(depth + 1, budget));
  return out;
}

}  // namespace tessera::checkpoint::detail
