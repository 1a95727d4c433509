#include "tessera/train/setup/node_memory.hpp"

#include <utility>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

/// -1: there is none, or it cannot be read.
std::int64_t step_of_checkpoint(std::filesystem::path const& directory) {
  if (directory.empty()) return -1;
  try {
    return checkpoint::read_manifest(directory).step;
  } catch (Error const&) {
    return -1;
  }
}

}  // namespace

std::optional<checkpoint::NodeMemory> node_memory(config::TrainingArguments const& arguments,
                                                  topology::MpiSession const& session,
                                                  topology::Environment const& environment) {
  bool const off = arguments.memory_save_steps.count == config::MemorySaveSteps::off;
  if (off || !arguments.do_train) return std::nullopt;
  auto const given = environment.find(memory_directory_variable);
  TESSERA_VALIDATE(given != environment.end(), UsageError,
                   "--memory_save_steps needs `tessera run`, which owns the memory of the "
                   "checkpoints and frees it at the end; start the training with `tessera run -- "
                   "tessera-train ...`, or leave the option out");
  checkpoint::NodeMemory memory{given->second, {}};
  for (auto const node : session.nodes())
    memory.node_of.push_back(static_cast<int>(topology::position(node)));
  if (environment.contains("TESSERA_SIMULATED_NODES"))
    memory.directory /= concat("node", topology::position(session.info().node));
  return memory;
}

StartingPoint newer_of(StartingPoint disk, checkpoint::NodeMemory const& memory,
                       std::int64_t before, comm::Collectives& comm) {
  std::int64_t const step = std::stoll(comm::broadcast_from_root(
      comm, [&] { return std::to_string(step_of_checkpoint(disk.checkpoint)); }));
  auto found = checkpoint::find_generation(memory, {step, before}, comm);
  if (!found) return disk;
  StartingPoint start;
  start.checkpoint = found->manifest.directory;
  start.note = concat("resuming from step ", found->manifest.step, " in the memory of the nodes");
  start.may_fall_back = true;
  start.disk_step = step;
  start.memory = std::move(found);
  return start;
}

}  // namespace tessera::train
