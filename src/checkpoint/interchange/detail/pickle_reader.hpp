#pragma once
/// Pickles read as data: nothing in them is ever called. Opcodes of protocol 2 as torch.save emits
/// them; a class or function is a pair of names, a call is a record (callable, arguments, state,
/// items), whatever it would have done.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::checkpoint::detail {

class PickleValue;

/// The values of one pickle. They refer to each other by number, so that shared and cyclic ones
/// need no care, and a value costs memory once, however often it is referred to.
class Pickle {
 public:
  using Id = std::uint32_t;
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    long_integer,
    real,
    text,
    tuple,
    list,
    dict,
    global,
    object,
    persistent
  };
  static constexpr std::size_t largest = std::size_t{64} << 20;  ///< bytes of a pickle
  static constexpr std::size_t most_values = 2'000'000, most_references = 8'000'000;

  /// Reads up to STOP; what follows it stays unread. @param source names the pickle in messages
  /// @throws DataError with the position: unknown opcode, limits, truncation, use of an empty stack
  Pickle(std::string text, std::string source);

  PickleValue root() const;
  std::size_t bytes() const { return text_.size(); }  ///< bytes of the pickle, STOP included
  std::size_t values() const { return nodes_.size(); }
  std::string const& source() const { return source_; }
  PickleValue value(Id id) const;

 private:
  friend class PickleValue;
  friend class PickleMachine;
  struct Range {
    std::uint32_t begin = 0, bytes = 0;  ///< in text_
  };
  struct Node {
    Kind kind = Kind::none;
    Range text;    ///< text, long_integer; global: module
    Range second;  ///< global: name
    union {
      std::int64_t integer = 0;
      double real;
    };
    Id callable = 0, arguments = 0, state = 0;  ///< object; persistent: arguments. 0: none
    std::vector<Id>
        items;  ///< tuple, list; dict and object: key, value, key, value, ... or elements
  };
  std::string_view view(Range range) const {
    return std::string_view(text_).substr(range.begin, range.bytes);
  }

  std::string text_, source_;
  std::vector<Node> nodes_;  ///< the first is None
  Id root_ = 0;
};

/// A value of a pickle, which must outlive it. Accessors throw DataError that name the pickle and
/// both kinds.
class PickleValue {
 public:
  using Kind = Pickle::Kind;
  PickleValue(Pickle const& pickle, Pickle::Id id) : pickle_(&pickle), id_(id) {}

  Kind kind() const { return node().kind; }
  Pickle::Id id() const { return id_; }
  bool is_none() const { return kind() == Kind::none; }
  /// A dict or a collections.OrderedDict.
  bool is_dict() const;
  bool is_sequence() const { return kind() == Kind::list || kind() == Kind::tuple; }
  bool is_global(std::string_view module, std::string_view name) const;
  /// A record of calling this; empty module: of anything.
  bool is_call(std::string_view module, std::string_view name) const;

  std::int64_t as_int() const;
  double as_number() const;
  bool as_bool() const;
  std::string as_text() const;
  std::string_view raw_text() const { return pickle_->view(node().text); }
  /// Elements of a list or tuple.
  std::size_t size() const;
  PickleValue operator[](std::size_t i) const;
  /// Calls on_member(key, value) for each member of a dict in order; keys are strings, none is
  /// listed twice.
  template <class OnMember>
  void each_member(OnMember&& on_member) const {
    check_members();
    auto const& items = node().items;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2)
      on_member(PickleValue(*pickle_, items[i]).as_text(), PickleValue(*pickle_, items[i + 1]));
  }
  /// Returns the number of pairs of a dict with keys of any kind.
  std::size_t pairs() const;
  PickleValue pair_key(std::size_t i) const { return PickleValue(*pickle_, node().items[2 * i]); }
  PickleValue pair_value(std::size_t i) const {
    return PickleValue(*pickle_, node().items[2 * i + 1]);
  }
  std::optional<PickleValue> find(std::string_view key) const;
  PickleValue at(std::string_view key) const;

  PickleValue callable() const { return PickleValue(*pickle_, node().callable); }
  PickleValue arguments() const { return PickleValue(*pickle_, node().arguments); }
  PickleValue state() const { return PickleValue(*pickle_, node().state); }
  /// "module name" of a global.
  std::string global_name() const;

  /// Converts the value to JSON for a record: numbers, texts, lists, dicts with text keys; anything
  /// else becomes its description. At most 64 levels deep and 10,000 values.
  ConfigTree to_tree() const;

  [[noreturn]] void fail(std::string const& what) const;

 private:
  Pickle::Node const& node() const { return pickle_->nodes_[id_]; }
  void check_members() const;
  ConfigTree to_tree(int depth, std::size_t& budget) const;

  Pickle const* pickle_;
  Pickle::Id id_;
};

}  // namespace tessera::checkpoint::detail
