#include "checkpoint/tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::cli {
namespace {

template <class T>
ConfigTree array_of(std::vector<T> const& list) {
  ConfigTree out = ConfigTree::array();
  for (auto const& one : list) out.push_back(one);
  return out;
}

}  // namespace

void print_json(ConfigTree const& tree) { fmt::print("{}\n", tree.dump(2)); }

ConfigTree json_array(std::vector<std::string> const& list) { return array_of(list); }
ConfigTree json_array(std::vector<std::int64_t> const& list) { return array_of(list); }

std::string shape_text(std::vector<std::int64_t> const& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace tessera::cli
