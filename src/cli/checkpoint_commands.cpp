// tessera checkpoint ls|info|verify and zero-to-fp32.
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "tessera/checkpoint/consolidate.hpp"
#include "tessera/checkpoint/directory.hpp"
#include "tessera/checkpoint/manifest.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

void list(std::string const& directory) {
  auto const listed = checkpoint::list_checkpoints(directory);
  TESSERA_VALIDATE(!listed.empty(), IoError, "no checkpoint in ", directory, "; give a run's output_dir or its checkpoints directory");
  fmt::print("{:<20} {:>10} {:>12} {:>10}  {}\n", "name", "step", "size", "age", "state");
  for (auto const& c : listed)
    fmt::print("{:<20} {:>10} {:>12} {:>10}  {}{}\n", c.name, c.step, human_bytes(c.bytes), human_duration(c.age_seconds),
               c.is_whole ? "whole" : "damaged: " + c.problem, c.is_latest ? ", latest" : "");
}

std::string shape_text(std::vector<std::int64_t> const& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void show(std::string const& given, std::string const& tag, bool tensors) {
  auto const m = checkpoint::read_manifest(checkpoint::resolve_checkpoint(given, tag));
  fmt::print("checkpoint   {}\nstep         {}\ncreated      {}\ntokens       {}\nparameters   {}\nworld size   {}\nZeRO stage   {}\n"
             "states       {}\nshards       {} ({})\n",
             m.directory.string(), m.step, m.created_utc, m.tokens, m.parameter_count(), m.world_size, m.zero_stage, fmt::join(m.states, ", "),
             m.shards.size(), human_bytes(m.shard_bytes()));
  if (!tensors) return;
  for (auto const& t : m.tensors) fmt::print("  {:<50} {:<20} {} pieces\n", t.name, shape_text(t.shape), t.pieces.size());
}

void verify(std::string const& given, std::string const& tag) {
  auto const directory = checkpoint::resolve_checkpoint(given, tag);
  auto const report = checkpoint::verify(directory);
  for (auto const& problem : report.problems) fmt::print(stderr, "{}\n", problem);
  TESSERA_VALIDATE(report.ok(), DataError, directory.string(), ": ", report.problems.size(), " problems in ", report.files,
                   " files; resume from another checkpoint (tessera checkpoint ls)");
  fmt::print("{}: whole ({} files, {} tensors, {} checked)\n", directory.string(), report.files, report.tensors, human_bytes(report.bytes));
}

struct ConsolidateArguments {
  checkpoint::ConsolidateOptions options;
  std::string checkpoint, output, tag, max_shard_size = "5GB", dtype = "fp32";
  bool safe_serialization = false, exclude_frozen_parameters = false, debug = false;
};

void consolidate(ConsolidateArguments& a) {
  a.options.checkpoint = a.checkpoint;
  a.options.output = a.output;
  a.options.tag = a.tag;
  a.options.max_shard_bytes = checkpoint::parse_size(a.max_shard_size);
  a.options.dtype = dtype_from_name(a.dtype);
  if (a.exclude_frozen_parameters) a.options.frozen = checkpoint::FrozenParameters::exclude;
  auto const r = checkpoint::consolidate(a.options);
  if (a.debug) fmt::print("read {}: {}, {} of elements\n", r.checkpoint.string(), r.format, human_bytes(r.bytes_read));
  fmt::print("{}: step {}, {} tensors, {} parameters, {} written in {:.2f} s\n", r.checkpoint.string(), r.step, r.tensors, r.parameters,
             human_bytes(r.bytes_written), r.seconds);
  for (auto const& file : r.files) fmt::print("  {}\n", file.string());
}

}  // namespace

void add_consolidate(CLI::App& app) {
  auto const a = std::make_shared<ConsolidateArguments>();
  app.add_option("checkpoint_dir", a->checkpoint, "Run directory, checkpoints directory or one checkpoint; or DeepSpeed's save_dir or one of its tags")->required();
  app.add_option("output", a->output, "Output: FILE.safetensors, FILE.bin, FILE.h5, or a directory (Hugging Face shards with index)")->required();
  app.add_option("-t,--tag", a->tag, "Which checkpoint: step_00000100 or 100 (default: the latest)");
  app.add_option("--max_shard_size", a->max_shard_size, "Largest file in an output directory, e.g. 5GB, 500MB")->capture_default_str();
  app.add_option("--dtype", a->dtype, "fp32, bf16 or fp16")->capture_default_str();
  app.add_flag("--safe_serialization", a->safe_serialization, "Directories are always written as safetensors; accepted for DeepSpeed's script");
  app.add_flag("--exclude_frozen_parameters", a->exclude_frozen_parameters, "Leave out what a DeepSpeed run did not train");
  app.add_flag("-d,--debug", a->debug, "Say what was read");
  app.callback([a] { consolidate(*a); });
}

void add_checkpoint_commands(CLI::App& app) {
  auto* group = app.add_subcommand("checkpoint", "List, describe and check checkpoints");
  group->require_subcommand(1);
  struct Arguments {
    std::string directory, tag;
    bool tensors = false;
  };
  auto const a = std::make_shared<Arguments>();
  auto* ls = group->add_subcommand("ls", "Steps, sizes, ages; whole or damaged; which one is the latest");
  ls->add_option("directory", a->directory, "Run directory or its checkpoints directory")->required();
  ls->callback([a] { list(a->directory); });
  auto* info = group->add_subcommand("info", "What one checkpoint holds");
  auto* check = group->add_subcommand("verify", "Read every byte and compare every checksum; 65 when something is damaged");
  for (auto* command : {info, check}) {
    command->add_option("checkpoint", a->directory, "Run directory, checkpoints directory or one checkpoint")->required();
    command->add_option("-t,--tag", a->tag, "Which checkpoint (default: the latest)");
  }
  info->add_flag("--tensors", a->tensors, "One line a tensor");
  info->callback([a] { show(a->directory, a->tag, a->tensors); });
  check->callback([a] { verify(a->directory, a->tag); });
  add_checkpoint_view(*group);
}

}  // namespace tessera::cli
