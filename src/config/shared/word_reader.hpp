#pragma once
/// The words of a command line, read against an option table: tessera-train's own, and those of
/// `tessera`'s commands.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/option_values.hpp"

namespace tessera::config {

/// What an unknown option was probably meant to be: "; did you mean --max_steps?", or the key of
/// the DeepSpeed JSON of that name; empty: nothing is near. @p names  of all options that may be
/// given
std::string suggestion(std::string_view name, std::vector<std::string> const& names);

class WordReader {
 public:
  /// `bare`: the word after a flag is an argument. `with_values`: it may be true or false.
  enum class Flags { bare, with_values };
  WordReader(OptionTable const& table, std::vector<std::string> words, Flags flags)
      : table_(table), words_(std::move(words)), flags_(flags) {}

  /// Whether a word begins like an option; a negative number and "-" do not.
  static bool is_option(std::string const& word);

  bool has_word() const { return next_ < words_.size(); }
  /// Whether the next word is neither an option nor "--".
  bool has_value() const;
  std::string const& next() { return words_[next_++]; }

  struct Given {
    Option const& option;
    ConfigTree value;
  };
  /// Reads an option that next() has returned, with the values that follow it: `--name value`,
  /// `--name=value`, `-n value`, `-nvalue`, `--no_flag`. Nothing when the table does not have it.
  /// @throws UsageError for a wrong value
  std::optional<Given> read(std::string const& word);
  /// The last option that was read, with dashes.
  std::string const& shown() const { return shown_; }

  /// Leaves out an option that read() did not know, and its values.
  void skip_unknown(std::string const& word);
  /// One message names all of them. @throws UsageError when there are any
  void refuse_unknown(std::vector<std::string> const& names) const;

 private:
  Option const* with_letter(char letter) const;
  ConfigTree value_of(Option const& option, std::optional<std::string> const& text);

  OptionTable const& table_;
  std::vector<std::string> words_;
  Flags flags_;
  std::size_t next_ = 0;
  std::string shown_;
  std::vector<std::string> unknown_;
};

/// Command-line words into values: `--name value`, `--name=value`, `-` as `_`, `--flag
/// [true|false]`, `--no_flag`, lists of words. The last of several wins. Words before the first
/// flag are left in @p positionals.
/// @throws UsageError naming the word, with the nearest known name when it is unknown
OptionValues parse_flags(OptionTable const& table, std::vector<std::string> const& words,
                         std::vector<std::string>& positionals);

}  // namespace tessera::config
