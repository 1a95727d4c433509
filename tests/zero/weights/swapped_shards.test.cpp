/// Weights on a drive: the same bits as in memory.
#include "weights/shard_store.hpp"

#include <gtest/gtest.h>

#include "engine_settings.hpp"
#include "mpi_test.hpp"
#include "swapped_runs.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {
namespace {

/// Weights on the drive with one buffer for all units and with one for each; all of them or the
/// last ones; with and without the optimizer.
TEST(SwappedWeights, GiveTheBitsOfWeightsInMemory) {
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  for (std::string const algorithm : {"AdamW", "Lamb", "Muon", "AdamW8bit"})
    for (Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
      for (int buffers : {1, 5})
        for (bool const with_optimizer : {false, true}) {
          SCOPED_TRACE(concat(algorithm, " in ", name_of(dtype), " with ", buffers, " buffers"));
          auto config = config_of(3, dtype);
          config.optimizer = spec_of(algorithm);
          if (with_optimizer && algorithm == "AdamW8bit" && dtype == Dtype::fp32) continue;
          expect_same_bits(config, *compute, *comm, [&](zero::EngineConfig& changed) {
            if (with_optimizer) states_of(changed).optimizer_swap = swap_of(1024, 3);
            weights_of(changed).weight_swap = {transfers(), buffers, 100000,
                                               buffers == 1 ? 0 : 11700 / comm->size()};
          });
        }
}

/// A model for inference takes its weights from the drive, pass by pass.
TEST(SwappedWeights, ServeInference) {
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  auto config = config_of(3, Dtype::bf16);
  auto const make = [&] {
    auto weights = zero::make_weights(config, TwoUnits::units(), *comm, *compute);
    weights->initialize(TwoUnits::fill);
    return weights;
  };
  auto const in_memory = make();
  weights_of(config).weight_swap = {transfers(), 1, 100000, 0};
  auto const swapped = make();
  weights_of(config).weight_swap->memory_numel = 1'000'000;
  auto const kept = make();
  EXPECT_EQ(swapped->memory().weights, 0u);
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<UnitIndex> const order{UnitIndex(0), UnitIndex(1), UnitIndex(0)};
    for (auto const* weights : {&in_memory, &swapped, &kept})
      (*weights)->begin_pass(memory::Pass::evaluation, order);
    for (auto unit : order) {
      auto const a = in_memory->acquire(unit, *compute);
      auto const b = swapped->acquire(unit, *compute);
      auto const c = kept->acquire(unit, *compute);
      for (std::size_t p = 0; p < a.size(); ++p)
        for (std::int64_t i = 0; i < a[p].numel(); ++i) {
          ASSERT_EQ(load(a[p], i), load(b[p], i));
          ASSERT_EQ(load(a[p], i), load(c[p], i));
        }
    }
  }
  EXPECT_EQ(swapped->prefetch()->read_units, 1) << "there is one buffer";
  EXPECT_FALSE(in_memory->prefetch());
  EXPECT_FALSE(kept->prefetch()) << "nothing is read";
}

TEST(SwappedWeights, RefuseBuffersThatAreTooSmall) {
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  auto config = config_of(3, Dtype::bf16);
  weights_of(config).weight_swap = {transfers(), 2, 100, 0};
  try {
    TwoUnits const run(config, *compute, *comm);
    ADD_FAILURE();
  } catch (ConfigError const& error) {
    EXPECT_NE(std::string(error.what()).find("buffers of 100 elements"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::test
