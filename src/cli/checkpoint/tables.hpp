#pragma once
/// JSON, columns and options that the subcommands of `tessera checkpoint` share.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::cli {

/// Prints the tree as indented JSON.
void print_json(ConfigTree const& tree);
ConfigTree json_array(std::vector<std::string> const& list);
ConfigTree json_array(std::vector<std::int64_t> const& list);
/// "[768, 2304]"
std::string shape_text(std::vector<std::int64_t> const& shape);

/// The option --dtype, which sets @p dtype to fp32, bf16 or fp16.
void add_dtype(Command& command, std::string& dtype);
/// The flag --allow_older, which sets @p when_damaged; it outlives the command.
void add_allow_older(Command& command, checkpoint::WhenDamaged& when_damaged);

/// Width of a column: the length of its longest text, at least @p minimum.
template <class List, class Text>
std::size_t column_width(List const& list, std::size_t minimum, Text const& text) {
  for (auto const& one : list) minimum = std::max(minimum, std::string_view(text(one)).size());
  return minimum;
}

}  // namespace tessera::cli
