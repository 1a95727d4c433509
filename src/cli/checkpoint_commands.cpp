// tessera checkpoint ls|info|verify|diff|prune.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "commands.hpp"
#include "tessera/checkpoint/compare.hpp"
#include "tessera/checkpoint/directory.hpp"
#include "tessera/checkpoint/manifest.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/status_line.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::Manifest;

void print(ConfigTree const& tree) { fmt::print("{}\n", tree.dump(2)); }

ConfigTree strings(std::vector<std::string> const& list) {
  ConfigTree out = ConfigTree::array();
  for (auto const& one : list) out.push_back(one);
  return out;
}

ConfigTree integers(std::vector<std::int64_t> const& list) {
  ConfigTree out = ConfigTree::array();
  for (auto const one : list) out.push_back(one);
  return out;
}

std::string shape_text(std::vector<std::int64_t> const& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Width of a column: its longest text.
template <class List, class Text>
std::size_t width_of(List const& list, std::size_t least, Text const& text) {
  for (auto const& one : list) least = std::max(least, std::string_view(text(one)).size());
  return least;
}

struct Arguments {
  std::string path, tag, other, other_tag, older_than;
  std::vector<std::string> states;
  std::int64_t keep = 0;
  double tolerance = -1;
  bool tensors = false, json = false, quick = false, dry_run = false, damaged = false,
       verify = false;
};

// ---- ls

void list(Arguments const& a) {
  auto const listed = checkpoint::list_checkpoints(a.path);
  auto const unfinished = checkpoint::list_unfinished(a.path);
  TESSERA_VALIDATE(!listed.empty() || !unfinished.empty(), IoError, "no checkpoint in ", a.path,
                   "; give a run's output_dir or its checkpoints directory");
  if (a.json) {
    ConfigTree out = ConfigTree::array();
    for (auto const& c : listed)
      out.push_back(ConfigTree()
                        .set("name", c.name)
                        .set("path", c.directory.string())
                        .set("step", c.step)
                        .set("bytes", c.bytes)
                        .set("age_seconds", c.age_seconds)
                        .set("latest", c.is_latest)
                        .set("whole", c.is_whole)
                        .set("problem", c.problem));
    for (auto const& u : unfinished)
      out.push_back(
          ConfigTree()
              .set("name", u.name)
              .set("path", u.path.string())
              .set("bytes", u.bytes)
              .set("age_seconds", u.idle_seconds)
              .set("latest", false)
              .set("whole", false)
              .set("problem", u.is_complete ? "complete, not yet renamed" : "unfinished save"));
    print(out);
    return;
  }
  auto const width = std::max(width_of(listed, 4, [](auto const& c) { return c.name; }),
                              width_of(unfinished, 4, [](auto const& u) { return u.name; }));
  fmt::print("{:<{}}  {:>10}  {:>10}  {:>8}  {}\n", "name", width, "step", "size", "age", "state");
  for (auto const& c : listed)
    fmt::print("{:<{}}  {:>10}  {:>10}  {:>8}  {}{}\n", c.name, width, c.step, human_bytes(c.bytes),
               human_duration(c.age_seconds), c.is_whole ? "whole" : "damaged",
               (c.is_latest ? ", latest" : "") + (c.is_whole ? "" : ": " + c.problem));
  for (auto const& u : unfinished)
    fmt::print("{:<{}}  {:>10}  {:>10}  {:>8}  {}\n", u.name, width, "", human_bytes(u.bytes),
               human_duration(u.idle_seconds),
               u.is_complete ? "complete save, not yet renamed" : "unfinished save");
}

// ---- info

ConfigTree info_tree(Manifest const& m) {
  ConfigTree out, tensors = ConfigTree::array(), shards = ConfigTree::array();
  out.set("path", m.directory.string())
      .set("run_id", m.run_id)
      .set("created_utc", m.created_utc)
      .set("step", m.step)
      .set("tokens_seen", m.tokens)
      .set("samples_seen", m.samples)
      .set("parameters", m.parameter_count())
      .set("world_size", m.world_size)
      .set("zero_stage", m.zero_stage)
      .set("states", strings(m.states))
      .set("bytes", m.shard_bytes())
      .set("model_config", m.model_config)
      .set("resolved_config", m.resolved_config)
      .set("trainer_state", m.trainer_state)
      .set("versions", m.versions);
  for (auto const& s : m.shards)
    shards.push_back(ConfigTree().set("file", s.file).set("bytes", s.bytes));
  for (auto const& t : m.tensors)
    tensors.push_back(ConfigTree()
                          .set("name", t.name)
                          .set("shape", integers(t.shape))
                          .set("numel", t.numel())
                          .set("aliases", strings(t.aliases))
                          .set("pieces", static_cast<std::int64_t>(t.pieces.size())));
  return out.set("shards", shards).set("tensors", tensors);
}

void show_tensors(Manifest const& m) {
  auto const name = width_of(m.tensors, 4, [](auto const& t) { return t.name; });
  auto const shape = width_of(m.tensors, 5, [](auto const& t) { return shape_text(t.shape); });
  fmt::print("\n{:<{}}  {:<{}}  {:>14}  {:>6}  {}\n", "name", name, "shape", shape, "elements",
             "pieces", "tied to");
  for (auto const& t : m.tensors)
    fmt::print("{:<{}}  {:<{}}  {:>14}  {:>6}  {}\n", printable(t.name), name, shape_text(t.shape),
               shape, with_commas(t.numel()), t.pieces.size(),
               printable(fmt::format("{}", fmt::join(t.aliases, ", "))));
}

/// ", up to 4 ranks a file, compressed"
std::string files_text(Manifest const& m) {
  int ranks = 1;
  bool compressed = false;
  for (auto const& shard : m.shards) {
    ranks = std::max(ranks, shard.ranks);
    compressed = compressed || shard.compression != checkpoint::Compression::none;
  }
  return (ranks > 1 ? fmt::format(", up to {} ranks a file", ranks) : "") +
         (compressed ? ", compressed" : "");
}

void show(Arguments const& a) {
  auto const m = checkpoint::read_manifest(checkpoint::resolve_checkpoint(a.path, a.tag));
  if (a.json) return print(info_tree(m));
  auto const row = [](char const* label, std::string const& value) {
    fmt::print("{:<13}{}\n", label, printable(value));
  };
  row("checkpoint", m.directory.string());
  row("run", m.run_id);
  row("created", m.created_utc);
  row("step", with_commas(m.step));
  row("tokens", with_commas(m.tokens));
  row("samples", with_commas(m.samples));
  row("model", m.model_config.get_string("model_type", "not said"));
  row("parameters",
      fmt::format("{} in {} tensors", with_commas(m.parameter_count()), m.tensors.size()));
  row("states", fmt::format("{}", fmt::join(m.states, ", ")));
  row("written by",
      fmt::format("{} {}, ZeRO stage {}, Tessera {}", m.world_size, plural(m.world_size, "rank"),
                  m.zero_stage, m.versions.get_string("tessera", "of unknown version")));
  row("shards",
      fmt::format("{} ({}{})", m.shards.size(), human_bytes(m.shard_bytes()), files_text(m)));
  if (a.tensors) show_tensors(m);
}

// ---- verify

ConfigTree damage_tree(checkpoint::Damage const& d) {
  ConfigTree out;
  out.set("file", d.file).set("tensor", d.tensor).set("state", d.state).set("text", d.text);
  if (d.end_byte > d.first_byte) out.set("first_byte", d.first_byte).set("end_byte", d.end_byte);
  return out;
}

void verify(Arguments const& a) {
  auto const directory = checkpoint::resolve_checkpoint(a.path, a.tag);
  checkpoint::VerifyOptions options;
  if (a.quick) options.depth = checkpoint::VerifyOptions::Depth::structure;
  ByteProgress progress("verify");
  options.progress = std::ref(progress);
  auto const report = checkpoint::verify(directory, options);
  progress.clear();
  if (a.json) {
    ConfigTree damages = ConfigTree::array();
    for (auto const& d : report.found) damages.push_back(damage_tree(d));
    print(ConfigTree()
              .set("path", directory.string())
              .set("whole", report.ok())
              .set("files", report.files)
              .set("tensors", report.tensors)
              .set("bytes", report.bytes)
              .set("damages", report.damages)
              .set("found", damages));
  } else {
    for (auto const& problem : report.problems) fmt::print(stderr, "{}\n", printable(problem));
  }
  TESSERA_VALIDATE(report.ok(), DataError, directory.string(), ": ", report.damages,
                   plural(report.damages, " problem"), " in ", report.files,
                   " files; resume from another checkpoint (tessera checkpoint ls)");
  if (!a.json)
    fmt::print(
        "{}: whole ({} files, {} tensors, {})\n", directory.string(), report.files, report.tensors,
        a.quick ? "structure only, no element read" : human_bytes(report.bytes) + " checked");
}

// ---- diff

ConfigTree side_tree(checkpoint::CompareReport::Side const& side) {
  return ConfigTree()
      .set("path", side.path.string())
      .set("format", side.format)
      .set("step", side.step)
      .set("only_tensors", strings(side.only_tensors))
      .set("only_states", strings(side.only_states));
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
        ConfigTree().set("name", s.name).set("a", integers(s.a)).set("b", integers(s.b)));
  print(ConfigTree()
            .set("a", side_tree(r.a))
            .set("b", side_tree(r.b))
            .set("states", strings(r.states))
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
    fmt::print("other shape: {} is {} in a, {} in b\n", printable(s.name), shape_text(s.a),
               shape_text(s.b));
  auto const name = width_of(r.tensors, 6, [](auto const&t) { return t.name; }),
             state = width_of(r.tensors, 5, [](auto const&t) { return t.state; });
  fmt::print("{:<{}}  {:<{}}  {:>14}  {:>14}  {:>10}  {:>10}  {:>10}\n", "tensor", name, "state",
             state, "elements", "different", "max", "mean", "relative");
  for (auto const& t : r.tensors)
    fmt::print("{:<{}}  {:<{}}  {:>14}  {:>14}  {:>10.3g}  {:>10.3g}  {:>10.3g}\n",
               printable(t.name), name, printable(t.state), state, with_commas(t.numel),
               with_commas(t.different), t.max, t.mean, t.relative);
  fmt::print("largest deviation {:g} over {} tensors, states {}\n", r.max(), r.tensors.size(),
             fmt::join(r.states, ", "));
}

void diff(Arguments const& a) {
  ByteProgress progress("diff");
  checkpoint::CompareOptions options{a.path,      a.other,  a.tag,
                                     a.other_tag, a.states, std::ref(progress)};
  auto const r = checkpoint::compare(options);
  progress.clear();
  a.json ? print_diff_json(r) : print_diff(r);
  if (a.tolerance < 0) return;
  TESSERA_VALIDATE(r.same_tensors(), DataError, "tensors differ: ", r.a.only_tensors.size(),
                   " only in a, ", r.b.only_tensors.size(), " only in b, ", r.other_shapes.size(),
                   " of other shapes");
  TESSERA_VALIDATE(r.max() <= a.tolerance, DataError, "the largest deviation, ", r.max(),
                   ", is more than the tolerance of ", a.tolerance);
}

// ---- prune

/// "90", "30m", "12h", "7d", "2w" as seconds.
double seconds_of(std::string const& text) {
  if (text.empty()) return 0;
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (std::exception const&) {
    end = 0;
  }
  std::string const unit = text.substr(end);
  double const factor = unit.empty() || unit == "s" ? 1
                        : unit == "m"               ? 60
                        : unit == "h"               ? 3600
                        : unit == "d"               ? 86400
                        : unit == "w"               ? 7 * 86400
                                                    : -1;
  TESSERA_VALIDATE(end > 0 && value >= 0 && std::isfinite(value) && factor > 0, UsageError, "'",
                   text, "' is no age; write 30m, 12h, 7d, 2w or a number of seconds");
  return value * factor;
}

void prune(Arguments const& a) {
  using Options = checkpoint::PruneOptions;
  TESSERA_VALIDATE(a.keep != 0 || !a.older_than.empty() || a.damaged, UsageError,
                   "say what goes: --keep N, --older-than AGE or --damaged");
  Options options{
      .checkpoints = a.path, .keep = a.keep, .older_than_seconds = seconds_of(a.older_than)};
  // --damaged alone touches no whole checkpoint
  if (a.keep == 0) options.keep = a.older_than.empty() ? INT64_MAX : 1;
  options.damaged = a.damaged ? Options::Damaged::remove : Options::Damaged::list;
  options.check = a.verify ? Options::Check::checksums : Options::Check::sizes;
  options.mode = a.dry_run ? Options::Mode::dry_run : Options::Mode::remove;
  std::error_code error;
  TESSERA_VALIDATE(fs::is_directory(a.path, error), IoError, a.path,
                   " is not a directory; give a run's output_dir or its checkpoints directory");
  auto const verdicts = checkpoint::prune(options);
  std::int64_t bytes = 0, removed = 0;
  for (auto const& v : verdicts)
    if (v.removed) bytes += v.bytes, ++removed;
  if (a.json) {
    ConfigTree out = ConfigTree::array();
    for (auto const& v : verdicts)
      out.push_back(ConfigTree()
                        .set("name", v.name)
                        .set("bytes", v.bytes)
                        .set("removed", v.removed && !a.dry_run)
                        .set("would_remove", v.removed)
                        .set("why", v.why));
    return print(out);
  }
  char const* verb = a.dry_run ? "would go" : "removed";
  auto const width = width_of(verdicts, 4, [](auto const& v) { return v.name; });
  for (auto const& v : verdicts)
    fmt::print("{:<8}  {:<{}}  {:>10}  {}\n", v.removed ? verb : "kept", v.name, width,
               human_bytes(v.bytes), v.why);
  fmt::print("{} {} {}, {}\n", removed, plural(removed, "checkpoint"), verb, human_bytes(bytes));
}

void add_looking(CLI::App& group, std::shared_ptr<Arguments> const& a) {
  auto* ls =
      group.add_subcommand("ls", "Steps, sizes, ages; whole or damaged; which one is the latest");
  ls->add_option("directory", a->path, "Run directory or its checkpoints directory")->required();
  ls->callback([a] { list(*a); });
  auto* info = group.add_subcommand("info", "What one checkpoint holds");
  auto* check = group.add_subcommand(
      "verify", "Read every byte and compare every checksum; 65 when something is damaged");
  for (auto* command : {info, check}) {
    command
        ->add_option("checkpoint", a->path,
                     "Run directory, checkpoints directory or one checkpoint")
        ->required();
    command->add_option("-t,--tag", a->tag, "Which checkpoint (default: the latest)");
  }
  info->add_flag("--tensors", a->tensors, "One line a tensor");
  info->callback([a] { show(*a); });
  check->add_flag("--quick", a->quick,
                  "Manifest, file sizes and HDF5 structure only; no element is read");
  check->callback([a] { verify(*a); });
  for (auto* command : {ls, info, check}) command->add_flag("--json", a->json, "Print JSON");
}

void add_diff(CLI::App& group, std::shared_ptr<Arguments> const& a) {
  auto* command = group.add_subcommand(
      "diff", "Largest and mean deviation of every tensor and state between two checkpoints");
  command
      ->add_option("a", a->path,
                   "Checkpoint or run directory, DeepSpeed's save_dir or tag, model directory or "
                   ".safetensors file")
      ->required();
  command->add_option("b", a->other, "The other one; ranks, stage and layout may differ")
      ->required();
  command->add_option("--tag_a", a->tag, "Which checkpoint of a (default: the latest)");
  command->add_option("--tag_b", a->other_tag, "Which checkpoint of b");
  command->add_option("--states", a->states,
                      "fp32, exp_avg, exp_avg_sq (default: all that both have)");
  command
      ->add_option("--tolerance", a->tolerance,
                   "End with 65 when an element deviates more, or tensors or shapes differ")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", a->json, "Print JSON");
  command->callback([a] { diff(*a); });
}

void add_prune(CLI::App& group, std::shared_ptr<Arguments> const& a) {
  auto* command = group.add_subcommand(
      "prune", "Remove old checkpoints; never the newest whole one nor the one `latest` names");
  command->add_option("directory", a->path, "Run directory or its checkpoints directory")
      ->required();
  command->add_option("--keep", a->keep, "Whole checkpoints that stay, the newest")
      ->check(CLI::PositiveNumber);
  command->add_option("--older-than", a->older_than,
                      "Remove only those older than this: 30m, 12h, 7d, 2w");
  command->add_flag("--damaged", a->damaged,
                    "Remove damaged ones and what interrupted saves left too");
  command->add_flag(
      "--verify", a->verify,
      "Compare every checksum of those that stay first; a damaged one does not count");
  command->add_flag("--dry-run", a->dry_run, "Only say what would go");
  command->add_flag("--json", a->json, "Print JSON");
  command->callback([a] { prune(*a); });
}

}  // namespace

void add_checkpoint_commands(CLI::App& app) {
  auto* group =
      app.add_subcommand("checkpoint", "List, describe, check, compare and remove checkpoints");
  group->require_subcommand(1);
  auto const a = std::make_shared<Arguments>();
  add_looking(*group, a);
  add_diff(*group, a);
  add_prune(*group, a);
  add_checkpoint_layouts(*group);
}

}  // namespace tessera::cli
