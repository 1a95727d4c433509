/// fp32 shards for checkpoints: the state itself, or a copy of 16-bit and quantized states.
#include "optimizer/state_shards.hpp"

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

struct Shards : test::Parts {
  explicit Shards(optim::OptimizerSpec spec)
      : Parts([&] {
          EngineConfig c;
          c.dtype = Dtype::bf16;
          c.optimizer = std::move(spec);
          return c;
        }()),
        large{{{"block", {test::parameter("w", {70, 64})}}}, 1, kernels::quantization_chunk},
        on_large{config, large, {&large, first_rank, true}, *comm, *compute},
        weights(make_resident_weights(on_large)),
        states(on_large, state_layouts(on_large, rules, config.optimizer), *weights, {},
               {memory::MemorySpace::host, compute.get()}),
        shards(states, *compute) {}

  PartitionPlan large;
  StoreContext on_large;
  std::unique_ptr<WeightStore> weights;
  StateTable states;
  StateShards shards;
};

TEST(StateShards, AreTheFp32StateItself) {
  Shards s(optim::make_spec("AdamW"));
  EXPECT_FALSE(s.shards.are_copies());
  EXPECT_EQ(s.shards.host(1)[0], s.states.region(1, first_unit));
  *static_cast<float*>(s.states.region(1, first_unit)) = 0.1f;
  s.shards.copy(1, ShardDirection::to_host);
  EXPECT_EQ(s.shards.host(1)[0][0], 0.1f);
}

TEST(StateShards, CopyStatesOf16BitsInBothDirections) {
  auto spec = optim::make_spec("AdamW");
  spec.set_state_dtype(Dtype::bf16);
  Shards s(spec);
  auto* const values = static_cast<bfloat16*>(s.states.region(2, first_unit));
  values[5] = bfloat16(1.5f);
  s.shards.copy(2, ShardDirection::to_host);
  float* const copy = s.shards.host(2)[0];
  EXPECT_EQ(copy[5], 1.5f);
  copy[5] = 0.1f;
  s.shards.copy(2, ShardDirection::to_state);
  EXPECT_EQ(static_cast<float>(values[5]), static_cast<float>(bfloat16(0.1f)));
}

/// Where some shards are the state itself, all of them last only until the next update.
TEST(StateShards, ReleaseCopiesThatAreNotASnapshot) {
  auto spec = optim::make_spec("AdamW");
  spec.set_state_dtype(Dtype::bf16);
  Shards s(spec);
  auto const& tracker = memory::MemoryTracker::of_process();
  auto const before = tracker.current(memory::Purpose::data);
  s.shards.copy(1, ShardDirection::to_host);
  EXPECT_GT(tracker.current(memory::Purpose::data), before);
  s.shards.release();
  EXPECT_EQ(tracker.current(memory::Purpose::data), before);
}

TEST(StateShards, DequantizeWithTheLargestMagnitudesOfTheChunks) {
  Shards s(optim::make_spec("AdamW8bit"));
  std::size_t absmax = 0;
  while (s.states.spec(absmax).name != optim::absmax_state("exp_avg").name) ++absmax;
  s.shards.host(absmax)[0][0] = 2.0f;
  s.shards.copy(1, ShardDirection::to_host);
  float* const values = s.shards.host(1)[0];
  values[0] = 2.0f, values[1] = -2.0f;
  s.shards.copy(1, ShardDirection::to_state);
  values[0] = values[1] = 0.0f;
  s.shards.copy(1, ShardDirection::to_host);
  EXPECT_EQ(values[0], 2.0f);
  EXPECT_NEAR(values[1], -2.0f, 0.02f) << "the nearest code";
}

}  // namespace
}  // namespace tessera::zero::detail
