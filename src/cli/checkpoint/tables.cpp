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

void add_allow_older(CLI::App& command, checkpoint::WhenDamaged& when_damaged) {
  command.add_flag_callback(
      "--allow_older", [&] { when_damaged = checkpoint::WhenDamaged::use_older; },
      "If the latest checkpoint is damaged or missing, use the newest complete one (without this: "
      "exit code 65)");
}

}  // namespace tessera::cli
