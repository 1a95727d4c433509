#pragma once
/// Runs of a small model with weights and states on a drive, next to the same runs in memory.

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "quadratic_model.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/random.hpp"
#include "tessera/memory/swap_file.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::test {

inline memory::SwapOptions transfers() {
  return {.directories = {std::filesystem::path(::testing::TempDir())},
          .block_size = 2 * memory::swap_alignment,
          .queue_depth = 2};
}

inline zero::OptimizerSwap swap_of(std::int64_t tile_numel, int buffers) {
  return {transfers(), tile_numel, buffers};
}

/// Two units, one of many tiles, in an engine.
struct TwoUnits {
  TwoUnits(zero::EngineConfig const& config, memory::Queue& queue, comm::Collectives& collectives)
      : compute(queue),
        comm(collectives),
        engine(zero::make_engine(config, units(), comm, compute)) {
    engine->initialize(fill);
  }
  static void fill(UnitIndex unit, int, std::int64_t first, std::int64_t numel, float* out) {
    for (std::int64_t i = 0; i < numel; ++i) out[i] = random(position(unit), first + i);
  }
  static float random(std::size_t stream, std::int64_t i) {
    return 2.0f * Philox{11, stream}.uniform(static_cast<std::uint64_t>(i)) - 1.0f;
  }

  bool step(std::size_t number, bool overflows = false) {
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    engine->begin_pass(memory::Pass::training, {UnitIndex(0), UnitIndex(1)});
    for (auto unit : {UnitIndex(0), UnitIndex(1)}) {
      auto const weights = engine->acquire(unit, compute);
      auto const gradients = engine->gradient(unit, compute);
      for (std::size_t p = 0; p < weights.size(); ++p)
        for (std::int64_t i = 0; i < gradients[p].numel(); ++i)
          store(gradients[p], i,
                overflows ? std::numeric_limits<float>::infinity()
                          : load(weights[p], i) * 0.5f + random(10 * number + position(unit), i));
      engine->gradient_complete(unit, compute);
    }
    return engine->finish_step(0.01).skipped;
  }

  /// All states of this rank.
  std::vector<float> states() {
    std::vector<float> out;
    for (auto const& state : engine->state())
      for (auto u = first_unit; u < engine->plan().end_unit(); ++u) {
        float const* const values = state.unit_shards[position(u)];
        out.insert(out.end(), values,
                   values + engine->plan().of_extent(state.extent).unit(u).shard_numel);
      }
    return out;
  }

  static std::vector<memory::UnitSpec> units() {
    return {{"first", {{"w", {130, 90}, {}, true, {}}}},
            {"second", {{"w", {61, 50}, {}, true, {}}, {"b", {61}, {}, false, {}}}}};
  }
  memory::Queue& compute;
  comm::Collectives& comm;
  std::unique_ptr<zero::Engine> engine;
};

inline optim::OptimizerSpec spec_of(std::string const& algorithm) {
  std::vector<optim::Hyperparameter> values;
  if (algorithm == "SGD") values = {{"momentum", 0.9}};
  if (algorithm == "Adafactor") values = {{"beta1", 0.9}};
  return optim::make_spec(algorithm, values);
}

/// Five steps, one of them skipped, of a run in memory and of one with @p change.
template <class Change>
void expect_same_bits(zero::EngineConfig config, memory::Queue& compute, comm::Collectives& comm,
                      Change const& change) {
  TwoUnits in_memory(config, compute, comm);
  change(config);
  TwoUnits swapped(config, compute, comm);
  EXPECT_GT(swapped.engine->memory().swapped, 0u);
  EXPECT_EQ(swapped.states(), in_memory.states());
  for (std::size_t step = 0; step < 5; ++step) {
    bool const overflows = step == 2;
    EXPECT_EQ(swapped.step(step, overflows), in_memory.step(step, overflows));
    if (step == 1 || step == 4) {
      EXPECT_EQ(swapped.states(), in_memory.states());
    }
  }
}

inline zero::EngineConfig config_of(int stage, Dtype dtype) {
  zero::EngineConfig config;
  config.partition = zero::partition_of(stage);
  config.dtype = config.communication_dtype = dtype;
  config.max_grad_norm = 1.0;
  return config;
}

}  // namespace tessera::test
