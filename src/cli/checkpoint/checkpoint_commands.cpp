#include "checkpoint/checkpoint_commands.hpp"

#include "checkpoint/diff_command.hpp"
#include "checkpoint/inspect_commands.hpp"
#include "checkpoint/layout_commands.hpp"
#include "checkpoint/prune_command.hpp"

namespace tessera::cli {

void add_checkpoint_commands(CLI::App& app) {
  auto* group =
      app.add_subcommand("checkpoint", "List, describe, check, compare and remove checkpoints");
  group->require_subcommand(1);
  add_inspect_commands(*group);
  add_diff(*group);
  add_prune(*group);
  add_layout_commands(*group);
}

}  // namespace tessera::cli
