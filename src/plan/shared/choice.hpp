#pragma once
/// The ways of running that a plan compares.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config/arguments.hpp"
#include "tessera/config/offload.hpp"
#include "tessera/config/resolved_config.hpp"

namespace tessera::plan {

/// A stage with what else decides memory and speed. All choices of a plan have the same batch per
/// step.
struct Choice {
  int stage = 0;
  config::OffloadDevice optimizer = config::OffloadDevice::none;   ///< offload_optimizer
  config::OffloadDevice parameters = config::OffloadDevice::none;  ///< offload_param
  Recompute recompute = Recompute::none;
  std::int64_t micro_batch = 1, accumulation = 1;
  std::int64_t bucket_numel = 0;  ///< bucket size of reductions and all-gathers; 0: as given
  std::int64_t shard_group = 0;   ///< mics_shard_size at stage 3; 0: all ranks, or as given

  bool offloads() const {
    return optimizer != config::OffloadDevice::none || parameters != config::OffloadDevice::none;
  }
  bool operator==(Choice const&) const = default;
};

/// "stage 2 + offload_optimizer cpu, recompute block, micro-batch 4 x 2"
std::string text_of(Choice const& choice);
/// "stage 2 + offload", the words of the guides; "stage 3 in groups of 8 ranks".
std::string ladder_step_of(Choice const& choice);

/// Place in the guides' order of speed, stage 0 > 1 > 2 > 2 + offload > 3 > 3 + offload: lower is
/// faster; more recomputation, larger shard groups and smaller micro-batches are slower within a
/// place. Memory has the reverse order.
bool is_faster_by_the_guides(Choice const& a, Choice const& b);

/// What the memory of a rank may hold besides the device's.
struct ChoiceLimits {
  bool has_device = true;
  bool has_nvme = false;
  /// Divisors of the batch per step and rank, also where a micro-batch is given.
  bool splits_given_batch = false;
  /// Ranks of shard groups of stage 3, besides all ranks.
  std::vector<std::int64_t> shard_groups{};
};

/// All choices that the arguments leave open: a stage, offload, recomputation or
/// micro-batch that they or their DeepSpeed configuration name is the only one. Micro-batches
/// divide the batch per step and rank. Shard groups save communication where memory is left, so
/// that they are a choice without offload only.
std::vector<Choice> open_choices(config::TrainingArguments const& arguments,
                                 config::ResolvedConfig const& resolved,
                                 ChoiceLimits const& limits);
/// What the arguments themselves say, with every default.
Choice given_choice(config::TrainingArguments const& arguments,
                    config::ResolvedConfig const& resolved);

/// The arguments of a run that is made that way: a DeepSpeed configuration with the stage and the
/// offload of @p choice, and the other keys of the given one.
config::TrainingArguments arguments_of(config::TrainingArguments arguments, Choice const& choice);

}  // namespace tessera::plan
