/// States on a drive: tiles in order, and the same bits as in memory.
#include "optimizer/swapped_states.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "engine_settings.hpp"
#include "mpi_test.hpp"
#include "swapped_runs.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/random.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using zero::detail::SwappedStates;

TEST(SwappedStates, CutsRegionsIntoTiles) {
  SwappedStates const states(swap_of(1500, 3), {"fp32", "exp_avg"},
                             {{"a", 5000}, {"b", 10}, {"c", 2048}});
  std::vector<std::int64_t> begins, sizes;
  for (auto const& tile : states.tiles()) {
    begins.push_back(tile.begin);
    sizes.push_back(tile.numel);
  }
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 2048, 4096, 0, 0}));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2048, 2048, 904, 10, 2048}));
  EXPECT_EQ(states.first_tile(UnitIndex(1)), 3u);
  EXPECT_EQ(states.end_tile(UnitIndex(1)), 4u);
  EXPECT_EQ(states.file_bytes(), 2u * 4 * (5120 + 1024 + 2048));
  EXPECT_EQ(states.buffer_bytes(), 3u * 2 * 4 * 2048 + memory::swap_alignment);
}

/// Every number of buffers: fewer than tiles, one for each, more.
TEST(SwappedStates, TilesComeAndGoInOrder) {
  auto const queue = memory::make_worker_queue("compute");
  for (int buffers : {1, 2, 4, 5, 9}) {
    SwappedStates states(swap_of(1024, buffers), {"a", "b"},
                         {{"x", 2500}, {"y", 1000}, {"z", 1024}});
    auto const values = [](int state, std::size_t unit, std::int64_t i, int round) {
      return static_cast<float>(1000 * i + 100 * static_cast<int>(unit) + 10 * state + round);
    };
    std::vector<std::int64_t> const numel{2500, 1000, 1024};
    for (std::size_t u = 0; u < numel.size(); ++u)
      for (int k = 0; k < 2; ++k)
        for (std::int64_t i = 0; i < numel[u]; ++i)
          states.region(k, UnitIndex(static_cast<int>(u)))[i] = values(k, u, i, 0);
    int wrong = 0;
    for (int round = 0; round < 3; ++round)
      for (std::size_t t = 0; t < states.tiles().size(); ++t) {
        states.acquire(*queue, t);
        queue->submit([&, t, round] {
          auto const& tile = states.tiles()[t];
          for (int k = 0; k < 2; ++k)
            for (std::int64_t i = 0; i < tile.numel; ++i) {
              float& value = states.values(t, k)[i];
              wrong += value != values(k, position(tile.unit), tile.begin + i, round);
              value += 1.0f;
            }
        });
        states.release(*queue, t);
      }
    queue->record().wait("the tiles", std::chrono::seconds(60));
    EXPECT_EQ(wrong, 0) << buffers;
    states.finish_transfers();
    for (std::size_t u = 0; u < numel.size(); ++u)
      for (std::int64_t i = 0; i < numel[u]; ++i)
        ASSERT_EQ(states.region(1, UnitIndex(static_cast<int>(u)))[i], values(1, u, i, 3));
  }
}

TEST(SwappedStates, GiveTheBitsOfStatesInMemory) {
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  for (std::string const algorithm :
       {"AdamW", "SGD", "Lion", "Lamb", "Adafactor", "Muon", "AdamW8bit"})
    for (int stage : {1, 2, 3})
      for (Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
        bool const has_only_codes = algorithm == "AdamW8bit" && dtype == Dtype::fp32;
        if (has_only_codes) continue;
        SCOPED_TRACE(concat(algorithm, " at stage ", stage, " in ", name_of(dtype)));
        auto config = config_of(stage, dtype);
        config.optimizer = spec_of(algorithm);
        expect_same_bits(config, *compute, *comm, [](zero::EngineConfig& changed) {
          states_of(changed).optimizer_swap = swap_of(1024, 3);
        });
      }
}

/// What a checkpoint brings goes through the views, also where tiles have been read ahead.
TEST(SwappedStates, TakeWhatIsLoaded) {
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  zero::EngineConfig config;
  config.partition = zero::partition_of(3);
  config.dtype = config.communication_dtype = Dtype::bf16;
  TwoUnits in_memory(config, *compute, *comm);
  states_of(config).optimizer_swap = swap_of(2048, 2);
  TwoUnits swapped(config, *compute, *comm);
  for (std::size_t step = 0; step < 3; ++step) in_memory.step(step);
  swapped.step(7);  // another history
  auto const from = in_memory.engine->state();
  auto const to = swapped.engine->state();
  for (std::size_t k = 0; k < to.size(); ++k)
    for (auto u = first_unit; u < swapped.engine->plan().end_unit(); ++u)
      std::copy_n(from[k].unit_shards[position(u)], swapped.engine->plan().unit(u).shard_numel,
                  to[k].unit_shards[position(u)]);
  swapped.engine->load_state(3, in_memory.engine->scaler_state());
  for (std::size_t step = 3; step < 5; ++step) {
    in_memory.step(step);
    swapped.step(step);
  }
  EXPECT_EQ(swapped.states(), in_memory.states());
}

TEST(SwappedStates, LeaveTheMemoryOfTheRank) {
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  zero::EngineConfig config;
  config.partition = zero::partition_of(2);
  config.dtype = config.communication_dtype = Dtype::bf16;
  TwoUnits const in_memory(config, *compute, *comm);
  states_of(config).optimizer_swap = swap_of(1024, 2);
  TwoUnits const swapped(config, *compute, *comm);
  auto const a = in_memory.engine->memory(), b = swapped.engine->memory();
  EXPECT_EQ(b.master_weights + b.optimizer_state, 0u);
  EXPECT_GE(b.swapped, a.master_weights + a.optimizer_state);
  EXPECT_EQ(b.weights, a.weights);
  EXPECT_EQ(b.buffers - a.buffers, 2u * 3 * 4096 + memory::swap_alignment);
  EXPECT_EQ(a.formula - b.formula,
            12 * static_cast<std::size_t>(swapped.engine->plan().parameter_count()) /
                static_cast<std::size_t>(comm->size()));
}

TEST(SwappedStates, RefuseWhatCannotBeCut) {
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  auto const message = [&](zero::EngineConfig const& config) {
    try {
      TwoUnits const run(config, *compute, *comm);
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  zero::EngineConfig config;
  config.partition = zero::partition_of(1);
  states_of(config).optimizer_swap = swap_of(1024, 2);
  config.optimizer = optim::make_spec("AdamW8bit");
  EXPECT_NE(message(config).find("a drive for AdamW8bit and fp32 weights"), std::string::npos);
  config.optimizer = optim::make_spec("AdamW");
  states_of(config).optimizer_swap->transfers.directories = {"/no/such/directory"};
  EXPECT_NE(message(config).find("/no/such/directory"), std::string::npos);
}

}  // namespace
}  // namespace tessera::test
