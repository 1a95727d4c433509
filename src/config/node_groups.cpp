#include "tessera/config/node_groups.hpp"

#include <algorithm>
#include <bit>

#include "tessera/core/error.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::config {
namespace {

constexpr char const* hierarchical = "zero_optimization.mics_hierarchical_params_gather";

void place_hybrid_shard(ResolvedConfig& config, int ranks_per_node) {
  TESSERA_VALIDATE(ranks_per_node > 0, ConfigError,
                   "fsdp hybrid_shard shards within nodes, and the nodes of this job do not all "
                   "have the same number of consecutive ranks; start the same number on each node "
                   "(srun --distribution=block), or use full_shard");
  config.shard_group_size = ranks_per_node;
  if (ranks_per_node == 1 && config.world_size > 1) {
    config.stage = 0;
    config.shard_group_size = 0;
    config.notes.emplace_back(
        "fsdp: hybrid_shard with one rank per node is no_shard, ZeRO stage 0");
  }
}

void check_shard_groups(ResolvedConfig const& config, int ranks_per_node) {
  auto const size = config.shard_group_size;
  TESSERA_VALIDATE(size <= config.world_size && config.world_size % size == 0, ConfigError,
                   "zero_optimization.mics_shard_size is ", size, " on ", config.world_size,
                   " ranks; it must divide the number of ranks");
  TESSERA_VALIDATE(size > 1 || config.world_size == 1, ConfigError,
                   "zero_optimization.mics_shard_size is 1, which partitions nothing; use at least "
                   "2, or stage 0 without the key");
  TESSERA_VALIDATE(!config.hierarchical_gather || ranks_per_node == 0 || size > ranks_per_node,
                   ConfigError, hierarchical, " is true, and groups of ", size,
                   " ranks are within nodes of ", ranks_per_node,
                   "; their gathers have one level: remove the key");
}

void check_secondary_groups(ResolvedConfig& config, int ranks_per_node) {
  auto const size = config.secondary_group_size;
  TESSERA_VALIDATE(size <= config.world_size && config.world_size % size == 0, ConfigError,
                   "zero_optimization.zero_hpz_partition_size is ", size, " on ", config.world_size,
                   " ranks; it must divide the number of ranks");
  if (ranks_per_node > 0 && ranks_per_node % size != 0)
    config.notes.push_back(concat("zero_hpz_partition_size: groups of ", size,
                                  " ranks span nodes of ", ranks_per_node,
                                  ", so that gathers of backward leave the node"));
}

/// DeepSpeed reduces values where there is one node, too.
void place_quantized_gradients(ResolvedConfig& config, int ranks_per_node) {
  if (config.world_size == 1) return;
  if (ranks_per_node == config.world_size) {
    config.notes.emplace_back(
        "zero_quantized_gradients: no effect on one node, whose gradients are reduced as values");
    return;
  }
  TESSERA_VALIDATE(!config.reduce_once, ConfigError,
                   "--reduce_once with zero_quantized_gradients, which quantizes the gradients of "
                   "a micro-step; use one of them");
  config.gradient_node_size = std::max(ranks_per_node, 1);
  if (ranks_per_node == 0)
    config.notes.emplace_back(
        "zero_quantized_gradients: without nodes of the same number of consecutive ranks, "
        "gradients are reduced in one all-to-all over all ranks");
}

/// --reproducible world: sums over ranks and micro-steps are one binary tree in fp32.
void check_tree_of_sums(ResolvedConfig const& c) {
  auto const require = [](bool holds, auto const&... why) {
    TESSERA_VALIDATE(holds, ConfigError, "--reproducible world: ", why...);
  };
  auto const steps = static_cast<unsigned>(c.accumulation_steps);
  require(std::has_single_bit(static_cast<unsigned>(c.world_size)) && std::has_single_bit(steps),
          "gradient_accumulation_steps is ", steps, " on ", c.world_size,
          " ranks, and a binary tree divides a power of two of both; use powers of two");
  require(optim::is_elementwise(c.optimizer), "optimizer ", c.optimizer.algorithm,
          " sends signs, sums over parameters or has quantized states; use AdamW, SGD or Lion");
  require(c.master_dtype == Dtype::fp32 && c.accumulation_dtype == Dtype::fp32,
          "master weights and accumulated gradients must be fp32");
  require(c.communication_dtype == Dtype::fp32 || !c.origins.contains("communication_dtype"),
          "communication_data_type is ", name_of(c.communication_dtype), "; use fp32");
  require(c.gradient_allreduce_op == "mean",
          "gradient_allreduce_op is sum, whose gradients grow with the ranks; use mean");
  require(!c.quantized_weights && c.gradient_node_size == 0 && c.shard_group_size == 0,
          "quantized collectives and shard groups sum in another order; remove them");
}

}  // namespace

bool wants_two_levels(TrainingArguments const& arguments) {
  bool const wanted = arguments.deepspeed.value(hierarchical) == ConfigTree(true);
  TESSERA_VALIDATE(!wanted || arguments.collectives != "flat", ConfigError,
                   arguments.deepspeed.source, ": ", hierarchical,
                   " is true but --collectives is flat; remove one of them");
  return wanted;
}

void place_on_nodes(ResolvedConfig& config, int ranks_per_node) {
  if (config.shards_within_nodes) place_hybrid_shard(config, ranks_per_node);
  if (config.shard_group_size > 0) check_shard_groups(config, ranks_per_node);
  if (config.secondary_group_size > 1) check_secondary_groups(config, ranks_per_node);
  if (config.quantized_gradients) place_quantized_gradients(config, ranks_per_node);
  if (config.reproducible_world()) check_tree_of_sums(config);
}

topology::Mesh mesh_of(ResolvedConfig const& config) {
  return topology::data_parallel_mesh(config.world_size, static_cast<int>(config.shard_group_size));
}

void check_nodes_of_tree(ResolvedConfig const& config, int ranks_per_node) {
  TESSERA_VALIDATE(
      !config.reproducible_world() || std::has_single_bit(static_cast<unsigned>(ranks_per_node)),
      ConfigError, "--reproducible world needs the same power of two of consecutive ranks on each ",
      "node; use srun --ntasks-per-node and --distribution=block");
}

}  // namespace tessera::config
