#include "checkpoint/diff_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "checkpoint/tables.hpp"
#include "tessera/checkpoint/tools/compare.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/status_line.hpp"
#include "tessera/core/text.hpp"
#include "tessera/optim/optimizer.hpp"
#include "validators.hpp"

namespace tessera::cli {
namespace {

struct DiffArguments {
  std::string path, tag, other, other_tag;
  std::vector<std::string> states;
  double tolerance = -1;
  bool json = false;
  checkpoint::WhenDamaged when_damaged = checkpoint::WhenDamaged::refuse;
};

ConfigTree side_tree(checkpoint::CompareReport::Side const& side) {
  return ConfigTree()
      .set("path", side.path.string())
      .set("format", side.format)
      .set("step", side.step)
      .set("only_tensors", json_array(side.only_tensors))
      .set("only_states", json_array(side.only_states));
}

void print_diff_json(checkpoint::CompareReport const& r) {
  ConfigTree tensors = ConfigTree::array(), shapes = ConfigTree::array();
  auto const number = [](double v) { return std::isfinite(v) ? ConfigTree(v) : ConfigTree("inf"); };
  for (auto const& t : r.tensors)
    tensors.push_back(ConfigTree()
                          .set("name", t.name)
                          .set("state", t.state)
                          .set("numel", t.numel)
                          .set("different", t.different)
                          .set("max", number(t.max))
                          .set("mean", number(t.mean))
                          .set("relative", number(t.relative)));
  for (auto const& s : r.other_shapes)
    shapes.push_back(
        ConfigTree().set("name", s.name).set("a", json_array(s.a)).set("b", json_array(s.b)));
  print_json(ConfigTree()
                 .set("a", side_tree(r.a))
                 .set("b", side_tree(r.b))
                 .set("states", json_array(r.states))
                 .set("max", number(r.max()))
                 .set("other_shapes", shapes)
                 .set("tensors", tensors));
}

void print_diff(checkpoint::CompareReport const& r) {
  auto const step = [](auto const& side) {
    return side.step < 0 ? "" : fmt::format(", step {}", side.step);
  };
  fmt::print("a  {} ({}{})\nb  {} ({}{})\n", r.a.path.string(), r.a.format, step(r.a),
             r.b.path.string(), r.b.format, step(r.b));
  for (auto const* side : {&r.a, &r.b}) {
    char const letter = side == &r.a ? 'a' : 'b';
    for (auto const& name : side->only_states)
      fmt::print("state only in {}: {}\n", letter, printable(name));
    for (auto const& name : side->only_tensors)
      fmt::print("tensor only in {}: {}\n", letter, printable(name));
  }
  for (auto const& s : r.other_shapes)
    fmt::print("shapes differ: {} is {} in a, {} in b\n", printable(s.name), shape_text(s.a),
               shape_text(s.b));
  auto const name = column_width(r.tensors, 6, [](auto const&t) { return t.name; }),
             state = column_width(r.tensors, 5, [](auto const&t) { return t.state; });
  fmt::print("{:<{}}  {:<{}}  {:>14}  {:>14}  {:>10}  {:>10}  {:>10}\n", "tensor", name, "state",
             state, "elements", "different", "max", "mean", "relative");
  for (auto const& t : r.tensors)
    fmt::print("{:<{}}  {:<{}}  {:>14}  {:>14}  {:>10.3g}  {:>10.3g}  {:>10.3g}\n",
               printable(t.name), name, printable(t.state), state, with_commas(t.numel),
               with_commas(t.different), t.max, t.mean, t.relative);
  fmt::print("largest deviation {:g} over {}, states {}\n", r.max(),
             counted(static_cast<std::int64_t>(r.tensors.size()), "tensor"),
             fmt::join(r.states, ", "));
}

void diff(DiffArguments const& a) {
  ByteProgress progress("diff");
  checkpoint::CompareOptions options{
      a.path, a.other, a.tag, a.other_tag, a.states, std::ref(progress), a.when_damaged};
  auto const r = checkpoint::compare(options);
  progress.clear();
  a.json ? print_diff_json(r) : print_diff(r);
  if (a.tolerance < 0) return;
  TESSERA_VALIDATE(r.same_tensors(), DataError, "tensors differ: ", r.a.only_tensors.size(),
                   " only in a, ", r.b.only_tensors.size(), " only in b, ", r.other_shapes.size(),
                   " with different shapes");
  TESSERA_VALIDATE(r.max() <= a.tolerance, DataError, "the largest deviation, ", r.max(),
                   ", exceeds the tolerance of ", a.tolerance);
}

/// "fp32" and the states of all optimizers, each once.
std::vector<std::string> known_states() {
  std::vector<std::string> names{optim::master_weights_name};
  for (auto const& optimizer : optim::optimizers())
    for (auto const& state : optimizer.states)
      if (std::find(names.begin(), names.end(), state) == names.end()) names.push_back(state);
  return names;
}

}  // namespace

void add_diff(CLI::App& group) {
  auto const a = std::make_shared<DiffArguments>();
  auto* command = group.add_subcommand(
      "diff",
      "Print the largest and mean deviation of each tensor and state between two checkpoints");
  command
      ->add_option("a", a->path,
                   "Checkpoint or run directory, DeepSpeed's save_dir or tag, model directory or "
                   ".safetensors file")
      ->required();
  command->add_option("b", a->other, "The other checkpoint; ranks, stage and layout may differ")
      ->required();
  command->add_option("--tag_a", a->tag, "Checkpoint of a (default: the latest)");
  command->add_option("--tag_b", a->other_tag, "Checkpoint of b (default: the latest)");
  add_allow_older(*command, a->when_damaged);
  command->add_option(
      "--states", a->states,
      fmt::format("Some of {} (default: all states in both)", fmt::join(known_states(), ", ")));
  command
      ->add_option("--tolerance", a->tolerance,
                   "Exit with 65 if an element deviates more, or if tensors or shapes differ")
      ->check(number_from(0));
  command->add_flag("--json", a->json, "Print JSON");
  command->callback([a] { diff(*a); });
}

}  // namespace tessera::cli
