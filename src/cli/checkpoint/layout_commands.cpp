#include "commands.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <memory>

#include "checkpoint/tables.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/tools/convert.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/status_line.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct LayoutArguments {
  std::string checkpoint, tag, destination, compress = "none", ranks_per_file;
  int ranks = 0;
  checkpoint::WhenDamaged when_damaged = checkpoint::WhenDamaged::refuse;
};

void write_view(LayoutArguments const& a) {
  auto const start = Clock::now();
  auto const directory = checkpoint::resolve_checkpoint(a.checkpoint, a.tag, a.when_damaged);
  auto const m = checkpoint::read_manifest(directory);
  auto const view = checkpoint::make_view(directory);
  fmt::print("{}: {} in {} over {}, {}, written in {:.2f} s\n", view.string(),
             counted(static_cast<std::int64_t>(m.tensors.size()), "tensor"),
             counted(static_cast<std::int64_t>(m.state_names().size()), "state"),
             counted(static_cast<std::int64_t>(m.shards.size()), "shard"),
             human_bytes(static_cast<std::int64_t>(std::filesystem::file_size(view))),
             seconds_since(start));
}

/// Parses the complete text as an integer.
bool read_number(std::string_view text, int& number) {
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

void convert(LayoutArguments const& a) {
  ByteProgress progress("convert");
  checkpoint::ConvertOptions options;
  options.source = a.checkpoint;
  options.tag = a.tag;
  options.when_damaged = a.when_damaged;
  options.destination = a.destination;
  options.ranks = a.ranks;
  options.progress = [&](std::int64_t done, std::int64_t total) { progress(done, total); };
  set_ranks_per_file(options, a.ranks_per_file);
  set_compression(options, a.compress);
  auto const r = checkpoint::convert(options);
  progress.clear();
  fmt::print("{}: step {}, {} in {} of {} converted to {} in {} of {}, in {:.2f} s\n",
             r.destination.string(), r.step, human_bytes(r.source_bytes),
             counted(r.source_files, "file"), r.source.string(), human_bytes(r.bytes),
             counted(r.files, "file"), r.destination.string(), r.seconds);
}

}  // namespace

void set_compression(checkpoint::ConvertOptions& options, std::string const& text) {
  if (text == "none") return;
  bool const known =
      text == "gzip" ||
      (text.starts_with("gzip:") && read_number(std::string_view(text).substr(5), options.level));
  TESSERA_VALIDATE(known, UsageError, "--compress is '", text,
                   "'; give none, gzip or gzip:LEVEL with a level from 1 (fast) to 9 (small)");
  options.compression = checkpoint::Compression::shuffle_gzip;
}

void set_ranks_per_file(checkpoint::ConvertOptions& options, std::string const& text) {
  if (text.empty()) return;
  bool const known =
      text == "all" || (read_number(text, options.ranks_per_file) && options.ranks_per_file > 0);
  TESSERA_VALIDATE(known, UsageError, "--ranks-per-file is '", text,
                   "'; give a number of at least 1, or all");
  if (text == "all") options.ranks_per_file = INT32_MAX;
}

void add_layout_commands(Command& group) {
  auto const a = std::make_shared<LayoutArguments>();
  auto& view = group.add_command(
      "view",
      "Write view.h5 again: each tensor in its true shape over all shards, without copying data");
  auto& to = group.add_command(
      "convert",
      "Write the same checkpoint with other shard files: fewer or more, compressed or not");
  for (auto* command : {&view, &to})
    command
        ->add("checkpoint DIR", a->checkpoint, "run directory, checkpoints directory or checkpoint")
        .required();
  to.add("destination DIR", a->destination, "directory of the new checkpoint; it must not exist")
      .required();
  for (auto* command : {&view, &to}) {
    command->add("-t,--tag TAG", a->tag, "checkpoint to use (default: the latest)");
    add_allow_older(*command, a->when_damaged);
  }
  to.add("--ranks", a->ranks, "divide the tensors among this number of ranks (default: unchanged)")
      .between(1, 1'000'000);
  to.add("--ranks-per-file N|all", a->ranks_per_file,
         "number of ranks per file, or all (default: unchanged; with --ranks: 1)");
  to.add("--compress", a->compress,
         "none, gzip or gzip:LEVEL (1 fast to 9 small; gzip: 4), with HDF5's shuffle filter");
  view.run([a] { write_view(*a); });
  to.run([a] { convert(*a); });
}

}  // namespace tessera::cli
