#pragma once
/// The modes of an engine as factors of a pairwise test, and the only function that writes them to
/// an EngineConfig.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "covering_array.hpp"
#include "exact_model.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/swap_file.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::test {

// The first level of a factor goes with most levels of the other factors.
enum class Stage { three, two, one, zero };
enum class Space { host, device };
enum class StatesPlace { resident, host, drive };
enum class HostShare { all, part };
enum class HostUpdate { prompt, delayed };
enum class WeightsPlace { resident, host, drive };
enum class SecondaryGroups { none, of_two };
enum class ShardGroups { all_ranks, of_two };
enum class WeightBits { none, bits_8, bits_4 };
enum class GradientQuantization { none, codes, feedback };
enum class Numbers { fp32, bf16, fp16, bf16_masters, bf16_states };
enum class Algorithm { adamw, adamw_8bit, lamb, adafactor, muon };
enum class Frozen { nothing, head, embedding };
enum class MicroSteps { one, four };
enum class Reductions { each, once };
enum class Order { ranks, tree };

struct Factor {
  char const* name;
  std::vector<char const*> levels;
};

/// In the order of the members of Modes.
inline std::vector<Factor> const& factors() {
  static std::vector<Factor> const all{
      {"stage", {"3", "2", "1", "0"}},
      {"space", {"host", "device"}},
      {"states", {"resident", "host", "drive"}},
      {"ratio", {"all", "part"}},
      {"update", {"prompt", "delayed"}},
      {"weights", {"resident", "host", "drive"}},
      {"secondary", {"none", "two"}},
      {"groups", {"all", "two"}},
      {"quantized_weights", {"none", "8", "4"}},
      {"quantized_gradients", {"none", "codes", "feedback"}},
      {"numbers", {"fp32", "bf16", "fp16", "bf16_masters", "bf16_states"}},
      {"optimizer", {"AdamW", "AdamW8bit", "Lamb", "Adafactor", "Muon"}},
      {"frozen", {"nothing", "head", "embedding"}},
      {"micro_steps", {"1", "4"}},
      {"reductions", {"each", "once"}},
      {"order", {"ranks", "tree"}}};
  return all;
}

struct Modes {
  Stage stage;
  Space space;
  StatesPlace states;
  HostShare share;
  HostUpdate update;
  WeightsPlace weights;
  SecondaryGroups secondary;
  ShardGroups groups;
  WeightBits quantized_weights;
  GradientQuantization quantized_gradients;
  Numbers numbers;
  Algorithm algorithm;
  Frozen frozen;
  MicroSteps micro_steps;
  Reductions reductions;
  Order order;
};

inline Modes modes_of(Configuration const& c) {
  return {Stage(c[0]),           Space(c[1]),
          StatesPlace(c[2]),     HostShare(c[3]),
          HostUpdate(c[4]),      WeightsPlace(c[5]),
          SecondaryGroups(c[6]), ShardGroups(c[7]),
          WeightBits(c[8]),      GradientQuantization(c[9]),
          Numbers(c[10]),        Algorithm(c[11]),
          Frozen(c[12]),         MicroSteps(c[13]),
          Reductions(c[14]),     Order(c[15])};
}

inline std::string name_of(Level l) {
  auto const& factor = factors()[static_cast<std::size_t>(l.factor)];
  return concat(factor.name, "=", factor.levels[static_cast<std::size_t>(l.level)]);
}
/// The levels that are not the first of their factors.
inline std::string name_of(Configuration const& c) {
  std::string out;
  for (int f = 0; f < static_cast<int>(c.size()); ++f)
    if (int const level = c[static_cast<std::size_t>(f)]; level > 0)
      out += (out.empty() ? "" : " ") + name_of(Level{f, level});
  return out.empty() ? "first levels" : out;
}

inline bool has_half_masters(Modes const& m) {
  return m.numbers == Numbers::bf16_masters || m.numbers == Numbers::bf16_states;
}
inline bool delays(Modes const& m) {  // no effect where the model computes on the host
  return m.update == HostUpdate::delayed && m.space == Space::device;
}

inline ExactModel model_of(Frozen frozen) {
  ExactModel out;
  if (frozen == Frozen::head) out.freeze("head").freeze("", "wpe").freeze("block.1", "k");
  if (frozen == Frozen::embedding) out.freeze("embedding").freeze("block.1", "b");
  return out;
}

inline memory::SwapOptions pairwise_transfers() {
  return {.directories = {std::filesystem::path(::testing::TempDir())},
          .block_size = 2 * memory::swap_alignment,
          .queue_depth = 2};
}

inline void set_numerics(zero::EngineConfig& config, Modes const& m) {
  config.dtype = m.numbers == Numbers::fp32   ? Dtype::fp32
                 : m.numbers == Numbers::fp16 ? Dtype::fp16
                                              : Dtype::bf16;
  config.communication_dtype = config.dtype;
  auto const* const name = factors()[11].levels[static_cast<std::size_t>(m.algorithm)];
  config.optimizer = optim::make_spec(name, {{"weight_decay", 0.1}});
  if (m.numbers == Numbers::bf16_states) config.optimizer.set_state_dtype(Dtype::bf16);
  config.max_grad_norm = 50.0;  // about a fourth of the norms
}

/// Settings of a stage are members of its alternative of zero::Partition.
/// @throws InternalError for modes that an EngineConfig cannot express
inline void require_expressible(Modes const& m) {
  bool const has_offload_option = m.share == HostShare::part || m.update == HostUpdate::delayed,
             shards_states = m.states != StatesPlace::resident || m.groups == ShardGroups::of_two ||
                             has_half_masters(m),
             gathers = m.weights != WeightsPlace::resident ||
                       m.secondary == SecondaryGroups::of_two ||
                       m.quantized_weights != WeightBits::none ||
                       m.quantized_gradients != GradientQuantization::none;
  TESSERA_VALIDATE(m.states != StatesPlace::resident || !has_offload_option, InternalError,
                   "cannot be expressed: ratio and delay are of offloaded states");
  TESSERA_VALIDATE(m.stage != Stage::zero || !(shards_states || has_offload_option), InternalError,
                   "cannot be expressed: stage 0 shards no states");
  TESSERA_VALIDATE(m.stage == Stage::three || !gathers, InternalError,
                   "cannot be expressed: the stage gathers no weights");
}

/// Small buckets and tiles, so that units have several.
inline zero::EngineConfig config_of(Modes const& m, int ranks) {
  require_expressible(m);
  zero::EngineConfig config;
  set_numerics(config, m);
  config.accumulation_steps = m.micro_steps == MicroSteps::four ? 4 : 1;
  config.sum_order = m.order == Order::tree ? zero::SumOrder::tree : zero::SumOrder::ranks;
  if (m.order == Order::tree) config.communication_dtype = Dtype::fp32;
  config.reduce_bucket_size = config.allgather_bucket_size = 1000;
  int const two = std::min(2, ranks);
  zero::ShardedWeights all;
  if (has_half_masters(m)) all.master_dtype = Dtype::bf16;
  all.reduce_once = m.reductions == Reductions::once;
  // One unit ahead, so that units are gathered again in the backward pass; or the small ones.
  all.prefetch_bucket_size = m.micro_steps == MicroSteps::one ? 0 : 600;
  if (m.states != StatesPlace::resident)
    all.optimizer_offload = {.tile_numel = 1024,
                             .buffer_count = 2,
                             .ratio = m.share == HostShare::part ? 0.3 : 1.0,
                             .delay_from = m.update == HostUpdate::delayed ? 1 : 0};
  if (m.states == StatesPlace::drive) all.optimizer_swap = {pairwise_transfers(), 1024, 3};
  if (m.weights == WeightsPlace::host) all.weight_offload.emplace();
  if (m.weights == WeightsPlace::drive) all.weight_swap = {pairwise_transfers(), 2, 100'000, 300};
  if (m.secondary == SecondaryGroups::of_two) all.secondary_group_size = two;
  if (m.groups == ShardGroups::of_two) all.shard_group_size = two;
  if (m.quantized_weights != WeightBits::none)
    all.quantized_weight_bits = m.quantized_weights == WeightBits::bits_8 ? 8 : 4;
  if (m.quantized_gradients != GradientQuantization::none)
    all.quantized_gradients = {.ranks_per_node = ranks > 2 ? 2 : 1, .feedback = {}};
  if (m.quantized_gradients == GradientQuantization::feedback)
    all.quantized_gradients->feedback.emplace();
  config.partition = zero::partition_of(3 - static_cast<int>(m.stage), all);
  return config;
}

}  // namespace tessera::test
