#pragma once
/// JSON read in one pass into its final place: for manifests and safetensors headers, which may
/// have a million entries. Strict (RFC 8259), at most 64 levels deep; integers must fit in 64 bits
/// and carry no fraction. Also text for messages and JSON.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {

class JsonReader {
 public:
  /// @param text must outlive the reader; @param source names it in messages
  JsonReader(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {}

  /// Calls on_member(std::string key) for every member; it must read the value.
  template <class OnMember>
  void object(OnMember&& on_member) {
    open('{');
    for (bool first = true; more('}', first); first = false) {
      std::string key = string();
      expect(':');
      on_member(std::move(key));
    }
  }
  /// Calls on_element() for every element; it must read the value.
  template <class OnElement>
  void array(OnElement&& on_element) {
    open('[');
    for (bool first = true; more(']', first); first = false) on_element();
  }
  std::string string();
  std::int64_t integer();
  /// Text of the next value, brackets balanced but otherwise unchecked: for ConfigTree::parse.
  std::string_view raw();
  /// Nothing but white space is left.
  void end();

  std::size_t position() const { return at_; }
  /// @throws DataError with source, line and column
  [[noreturn]] void fail(std::string const& what) const;

 private:
  void skip_space();
  char peek();
  void expect(char c);
  void open(char c);
  bool more(char close, bool first);
  void append_escape(std::string& out);
  unsigned hex4();
  void skip_string();

  std::string_view text_;
  std::string source_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

using tessera::printable;
/// The text as a JSON string with its quotes.
std::string json_quote(std::string_view text);
/// "[2, 3]" and "[\"a\", \"b\"]": JSON, and what messages say.
std::string list_text(std::vector<std::int64_t> const& numbers);
std::string list_text(std::vector<std::string> const& strings);

}  // namespace tessera::checkpoint::detail
