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

void add_dtype(Command& command, std::string& dtype) {
  command.add("--dtype", dtype, "data type")
      .one_of({"fp32", "bf16", "fp16"})
      .spelled({"float32"}, "fp32")
      .spelled({"bfloat16"}, "bf16")
      .spelled({"float16"}, "fp16");
}

void add_allow_older(Command& command, checkpoint::WhenDamaged& when_damaged) {
  command.add_flag("--allow_older",
                   "if the latest checkpoint is damaged or missing, use the newest complete one "
                   "(without this: exit code 65)",
                   [&] { when_damaged = checkpoint::WhenDamaged::use_older; });
}

}  // namespace tessera::cli
