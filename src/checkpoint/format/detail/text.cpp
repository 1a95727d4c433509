#include "format/detail/text.hpp"

#include "tessera/core/config_tree.hpp"

namespace tessera::checkpoint::detail {

std::string json_quote(std::string_view text) { return ConfigTree(text).dump(); }

std::string list_text(std::vector<std::int64_t> const& numbers) {
  std::string out(1, '[');
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out.append(", ");
    out.append(std::to_string(numbers[i]));
  }
  out.push_back(']');
  return out;
}

std::string list_text(std::vector<std::string> const& strings) {
  std::string out(1, '[');
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (i > 0) out.append(", ");
    out.append(json_quote(strings[i]));
  }
  out.push_back(']');
  return out;
}

}  // namespace tessera::checkpoint::detail
