#include "commands.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "checkpoint/tables.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/tools/compare.hpp"
#include "tessera/checkpoint/tools/prune.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/status_line.hpp"
#include "tessera/core/text.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::cli {
namespace {

using checkpoint::Manifest;
namespace fs = std::filesystem;

struct InspectArguments {
  std::string path, tag;
  bool tensors = false, json = false, quick = false, all = false;
  checkpoint::WhenDamaged when_damaged = checkpoint::WhenDamaged::refuse;
};

// ---- ls

char const* name_of(checkpoint::CheckpointState state) {
  static constexpr char const* names[] = {"complete", "model only", "damaged", "unreadable"};
  return names[static_cast<std::size_t>(state)];
}

void list(InspectArguments const& a) {
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
                        .set("whole", c.is_complete)
                        .set("state", name_of(c.state))
                        .set("problem", c.problem));
    for (auto const& u : unfinished)
      out.push_back(ConfigTree()
                        .set("name", u.name)
                        .set("path", u.path.string())
                        .set("bytes", u.bytes)
                        .set("age_seconds", u.idle_seconds)
                        .set("latest", false)
                        .set("whole", false)
                        .set("problem",
                             u.is_complete ? "finished save, not yet renamed" : "unfinished save"));
    print_json(out);
    return;
  }
  auto const width = std::max(column_width(listed, 4, [](auto const& c) { return c.name; }),
                              column_width(unfinished, 4, [](auto const& u) { return u.name; }));
  fmt::print("{:<{}}  {:>10}  {:>10}  {:>8}  {}\n", "name", width, "step", "size", "age", "state");
  for (auto const& c : listed)
    fmt::print("{:<{}}  {:>10}  {:>10}  {:>8}  {}{}\n", c.name, width, c.step, human_bytes(c.bytes),
               human_duration(c.age_seconds), name_of(c.state),
               std::string(c.is_latest ? ", latest" : "") +
                   (c.made_progress ? "" : ", steps skipped") +
                   (c.is_complete ? "" : ": " + c.problem));
  for (auto const& u : unfinished)
    fmt::print("{:<{}}  {:>10}  {:>10}  {:>8}  {}\n", u.name, width, "", human_bytes(u.bytes),
               human_duration(u.idle_seconds),
               u.is_complete ? "finished save, not yet renamed" : "unfinished save");
}

// ---- info

/// What the save found; it read every value.
std::string finite_text(Manifest const& m) {
  if (!m.nonfinite) return "not known, `tessera checkpoint verify` reads them";
  if (m.nonfinite->empty()) return "all finite when saved";
  return "not finite: " + checkpoint::text_of(*m.nonfinite);
}

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
      .set("states", json_array(m.state_names()))
      .set("nonfinite", m.nonfinite ? checkpoint::to_tree(*m.nonfinite) : ConfigTree())
      .set("skipped_in_a_row", m.skipped_in_a_row)
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
                          .set("shape", json_array(t.shape))
                          .set("numel", t.numel())
                          .set("aliases", json_array(t.aliases))
                          .set("pieces", static_cast<std::int64_t>(t.extents.size())));
  return out.set("shards", shards).set("tensors", tensors);
}

void show_tensors(Manifest const& m) {
  auto const name = column_width(m.tensors, 4, [](auto const& t) { return t.name; });
  auto const shape = column_width(m.tensors, 5, [](auto const& t) { return shape_text(t.shape); });
  fmt::print("\n{:<{}}  {:<{}}  {:>14}  {:>6}  {}\n", "name", name, "shape", shape, "elements",
             "extents", "tied to");
  for (auto const& t : m.tensors)
    fmt::print("{:<{}}  {:<{}}  {:>14}  {:>6}  {}\n", printable(t.name), name, shape_text(t.shape),
               shape, with_commas(t.numel()), t.extents.size(),
               printable(fmt::format("{}", fmt::join(t.aliases, ", "))));
}

/// ", up to 4 ranks per file, compressed"
std::string files_text(Manifest const& m) {
  int ranks = 1;
  bool compressed = false;
  for (auto const& shard : m.shards) {
    ranks = std::max(ranks, shard.ranks);
    compressed = compressed || shard.compression != checkpoint::Compression::none;
  }
  return (ranks > 1 ? fmt::format(", up to {} ranks per file", ranks) : "") +
         (compressed ? ", compressed" : "");
}

void print_info(Manifest const& m, bool tensors) {
  auto const row = [](char const* label, std::string const& value) {
    fmt::print("{:<13}{}\n", label, printable(value));
  };
  row("checkpoint", m.directory.string());
  row("run", m.run_id);
  row("created", m.created_utc);
  row("step", with_commas(m.step));
  row("tokens", with_commas(m.tokens));
  row("samples", with_commas(m.samples));
  row("model", m.model_config.get_string("model_type", "unknown"));
  row("parameters", fmt::format("{} in {}", with_commas(m.parameter_count()),
                                counted(static_cast<std::int64_t>(m.tensors.size()), "tensor")));
  row("states", fmt::format("{}", fmt::join(m.state_names(), ", ")));
  row("values", finite_text(m));
  if (m.skipped_in_a_row > 0)
    row("skipped",
        fmt::format("the last {} {}", m.skipped_in_a_row, plural(m.skipped_in_a_row, "step")));
  row("written by",
      fmt::format("{} {}, ZeRO stage {}, Tessera {}", m.world_size, plural(m.world_size, "rank"),
                  m.zero_stage, m.versions.get_string("tessera", "(unknown version)")));
  row("shards",
      fmt::format("{} ({}{})", m.shards.size(), human_bytes(m.shard_bytes()), files_text(m)));
  if (tensors) show_tensors(m);
}

void show(InspectArguments const& a) {
  auto const directory = checkpoint::resolve_checkpoint(a.path, a.tag, a.when_damaged);
  std::string const problem = checkpoint::find_problem(directory);
  auto const m = checkpoint::read_manifest(directory);
  a.json ? print_json(info_tree(m)) : print_info(m, a.tensors);
  TESSERA_VALIDATE(problem.empty(), DataError, directory.string(), " is damaged: ", problem);
}

// ---- verify

ConfigTree damage_tree(checkpoint::Damage const& d) {
  ConfigTree out;
  out.set("file", d.file).set("tensor", d.tensor).set("state", d.state).set("text", d.text);
  if (d.end_byte > d.first_byte) out.set("first_byte", d.first_byte).set("end_byte", d.end_byte);
  return out;
}

/// What verify found in one checkpoint.
struct Verified {
  fs::path directory;
  checkpoint::VerifyReport report;
  bool is_unreadable() const {
    return report.unreadable > 0 && report.unreadable == report.damages;
  }
};

Verified verify_one(InspectArguments const& a, fs::path const& directory) {
  checkpoint::VerifyOptions options;
  if (a.quick) options.depth = checkpoint::VerifyOptions::Depth::structure;
  ByteProgress progress("verify");
  options.progress = std::ref(progress);
  Verified verified{directory, checkpoint::verify(directory, options)};
  progress.clear();
  if (a.json) return verified;
  auto const& report = verified.report;
  for (auto const& problem : report.problems) fmt::print(stderr, "{}\n", printable(problem));
  if (report.ok())
    fmt::print("{}: complete ({}, {}, {})\n", directory.string(), counted(report.files, "file"),
               counted(report.tensors, "tensor"),
               a.quick ? "structure only, no data read" : human_bytes(report.bytes) + " checked");
  return verified;
}

ConfigTree verified_tree(Verified const& verified) {
  auto const& report = verified.report;
  ConfigTree damages = ConfigTree::array();
  for (auto const& d : report.found) damages.push_back(damage_tree(d));
  return ConfigTree()
      .set("path", verified.directory.string())
      .set("whole", report.ok())
      .set("files", report.files)
      .set("tensors", report.tensors)
      .set("bytes", report.bytes)
      .set("damages", report.damages)
      .set("found", damages);
}

void verify_latest(InspectArguments const& a) {
  auto const when = a.when_damaged == checkpoint::WhenDamaged::refuse
                        ? checkpoint::WhenDamaged::take
                        : a.when_damaged;
  auto const verified = verify_one(a, checkpoint::resolve_checkpoint(a.path, a.tag, when));
  if (a.json) print_json(verified_tree(verified));
  auto const& report = verified.report;
  TESSERA_VALIDATE(!verified.is_unreadable(), IoError, verified.directory.string(),
                   " cannot be checked: ", report.problems.front());
  TESSERA_VALIDATE(report.ok(), DataError, verified.directory.string(), ": ",
                   counted(report.damages, "problem"), " in ", counted(report.files, "file"),
                   "; `tessera checkpoint verify --all` checks the other checkpoints of the run");
}

void verify_all(InspectArguments const& a) {
  TESSERA_VALIDATE(a.tag.empty(), UsageError, "--all checks every checkpoint; leave out --tag");
  auto const listed = checkpoint::list_checkpoints(a.path);
  TESSERA_VALIDATE(!listed.empty(), IoError, "no checkpoint in ", a.path,
                   "; give a run's output_dir or its checkpoints directory");
  ConfigTree out = ConfigTree::array();
  std::string damaged;
  std::size_t count = 0;
  for (auto const& one : listed) {
    if (one.state == checkpoint::CheckpointState::only_model) {
      if (!a.json)
        fmt::print("{}: only a model, without checksums: not checked\n", one.directory.string());
      continue;
    }
    auto const verified = verify_one(a, one.directory);
    if (a.json) out.push_back(verified_tree(verified));
    if (verified.report.ok()) continue;
    TESSERA_VALIDATE(!verified.is_unreadable(), IoError, one.directory.string(),
                     " cannot be checked: ", verified.report.problems.front());
    damaged += (count++ ? ", " : "") + one.name;
  }
  if (a.json) print_json(out);
  TESSERA_VALIDATE(count == 0, DataError, a.path, ": ", count, " of ", listed.size(),
                   plural(static_cast<std::int64_t>(listed.size()), " checkpoint"),
                   count == 1 ? " is" : " are", " damaged: ", damaged);
}

}  // namespace

void add_inspect_commands(Command& group) {
  auto const a = std::make_shared<InspectArguments>();
  auto& ls = group.add_command(
      "ls", "List checkpoints: step, size, age, complete or damaged, and the latest");
  ls.add("directory DIR", a->path, "run directory or its checkpoints directory").required();
  ls.run([a] { list(*a); });
  auto& info = group.add_command("info", "Describe one checkpoint");
  auto& check = group.add_command("verify",
                                  "Read all data and compare all checksums; exits with 65 if "
                                  "the checkpoint is damaged or holds "
                                  "inf or NaN");
  for (auto* command : {&info, &check}) {
    command->add("checkpoint DIR", a->path, "run directory, checkpoints directory or checkpoint")
        .required();
    command->add("-t,--tag TAG", a->tag, "checkpoint to use (default: the latest)");
    add_allow_older(*command, a->when_damaged);
  }
  info.add("--tensors", a->tensors, "print one line per tensor");
  info.run([a] { show(*a); });
  check.add("--quick", a->quick,
            "check only the manifest, file sizes and HDF5 structure; read no data");
  check.add("--all", a->all, "check every checkpoint of the run");
  check.run([a] { a->all ? verify_all(*a) : verify_latest(*a); });
  for (auto* command : {&ls, &info, &check}) command->add("--json", a->json, "print JSON");
}

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

void add_diff(Command& group) {
  auto const a = std::make_shared<DiffArguments>();
  auto& command = group.add_command(
      "diff",
      "Print the largest and mean deviation of each tensor and state between two checkpoints");
  command
      .add("a PATH", a->path,
           "checkpoint or run directory, DeepSpeed's save_dir or tag, model directory or "
           ".safetensors file")
      .required();
  command.add("b PATH", a->other, "the other checkpoint; ranks, stage and layout may differ")
      .required();
  command.add("--tag_a TAG", a->tag, "checkpoint of a (default: the latest)");
  command.add("--tag_b TAG", a->other_tag, "checkpoint of b (default: the latest)");
  add_allow_older(command, a->when_damaged);
  command.add("--states", a->states, "states to compare (default: all that are in both)")
      .one_of(known_states());
  command
      .add("--tolerance", a->tolerance,
           "exit with 65 if an element deviates more, or if tensors or shapes differ")
      .at_least(0);
  command.add("--json", a->json, "print JSON");
  command.run([a] { diff(*a); });
}

void add_checkpoint_commands(Command& app) {
  auto& group =
      app.add_command("checkpoint", "List, describe, check, compare and remove checkpoints");
  add_inspect_commands(group);
  add_diff(group);
  add_prune(group);
  add_layout_commands(group);
}

}  // namespace tessera::cli
