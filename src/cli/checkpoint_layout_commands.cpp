// tessera checkpoint view: what changes a checkpoint's files and not its content.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "commands.hpp"
#include "tessera/checkpoint/directory.hpp"
#include "tessera/checkpoint/manifest.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void write_view(std::string const& given, std::string const& tag) {
  auto const start = Clock::now();
  auto const directory = checkpoint::resolve_checkpoint(given, tag);
  auto const view = checkpoint::make_view(directory);
  auto const m = checkpoint::read_manifest(directory);
  fmt::print("{}: {} tensors in {} states over {} shards, {}, written in {:.2f} s\n", view.string(), m.tensors.size(), m.states.size(), m.shards.size(),
             human_bytes(static_cast<std::int64_t>(std::filesystem::file_size(view))), seconds_since(start));
}

}  // namespace

void add_checkpoint_view(CLI::App& group) {
  struct Arguments {
    std::string checkpoint, tag;
  };
  auto const a = std::make_shared<Arguments>();
  auto* view = group.add_subcommand("view", "Write view.h5 anew: every tensor in its true shape over all shards, no byte copied");
  view->add_option("checkpoint", a->checkpoint, "Run directory, checkpoints directory or one checkpoint")->required();
  view->add_option("-t,--tag", a->tag, "Which checkpoint (default: the latest)");
  view->callback([a] { write_view(a->checkpoint, a->tag); });
}

}  // namespace tessera::cli
