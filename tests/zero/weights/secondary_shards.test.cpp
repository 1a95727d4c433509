/// Secondary shards over groups of two ranks (ZeRO++ hpZ): the bits of stage 3 without them, bytes
/// of each group, memory.
#include "weights/secondary_shards.hpp"

#include "engine_fixture.hpp"
#include "engine_settings.hpp"

namespace tessera::test {
namespace {

using namespace tied_model;

constexpr std::size_t group_size = 2;

std::size_t ranks() { return static_cast<std::size_t>(session().info().world_size); }

zero::EngineConfig with_secondary(zero::EngineConfig config) {
  weights_of(config).secondary_group_size = group_size;
  return config;
}

TEST(SecondaryShards, ChangeNoBit) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16})
    for (std::int64_t const prefetch :
         {std::int64_t{0}, std::int64_t{700}, std::int64_t{50'000'000}})
      for (std::int64_t const bucket : {std::int64_t{256}, std::int64_t{500'000'000}}) {
        auto config = config_of(3, dtype);
        config.accumulation_steps = 2;
        set_prefetch(config, prefetch);
        config.allgather_bucket_size = bucket;
        Training with(with_secondary(config)), without(config);
        for (int k = 0; k < 3; ++k) {
          auto const a = with.step(1e-2), b = without.step(1e-2);
          EXPECT_EQ(a.grad_norm, b.grad_norm);
          EXPECT_EQ(with.weights(), without.weights()) << "an evaluation between steps";
        }
      }
}

/// Every rank gathers a unit once per step from all ranks, and otherwise from its group.
TEST(SecondaryShards, KeepLaterGathersInTheGroup) {
  for (int const micro_steps : {1, 2}) {
    auto config = with_secondary(config_of(3, Dtype::bf16));
    config.accumulation_steps = micro_steps;
    set_prefetch(config, 0);
    Training training(config, QuadraticModel(blocks, true));
    (void)training.step(1e-2);
    training.recording->clear();
    (void)training.step(1e-2);
    std::size_t world = 0, group = 0;
    for (auto const& r : training.recording->records()) {
      if (r.operation != "all_gather") continue;
      EXPECT_TRUE(r.group.empty() || r.group.starts_with("secondary group")) << r.group;
      (r.group.empty() ? world : group) += r.bytes_sent;
    }
    // embedding: forward, tied head, backward; blocks: forward and backward; head once
    std::size_t const all = static_cast<std::size_t>(micro_steps) * size_of(Dtype::bf16) *
                            (3 * embedding + 2 * blocks * block + head);
    std::size_t const once = size_of(Dtype::bf16) * parameters;
    EXPECT_EQ(world, once / ranks() * (ranks() - 1));
    EXPECT_EQ(group, (all - once) / group_size * (group_size - 1));
  }
}

TEST(SecondaryShards, TakeTheirPartOfTheWeights) {
  Training training(with_secondary(config_of(3, Dtype::bf16)), QuadraticModel(blocks, true));
  (void)training.step(1e-2);
  auto const m = training.engine->memory();
  EXPECT_EQ(m.weights, 2 * parameters / ranks() + 2 * parameters / group_size);
  EXPECT_EQ(m.formula, 16 * parameters / ranks() + 2 * parameters / group_size);
}

/// Weights that never change stay in the group after their first gather.
TEST(SecondaryShards, OfFrozenWeightsLast) {
  auto config = with_secondary(config_of(3));
  set_prefetch(config, 0);
  Training training(config, QuadraticModel(blocks, true).train_only({"b"}));
  (void)training.step(1e-2);
  training.recording->clear();
  (void)training.step(1e-2);
  std::size_t world = 0;
  for (auto const& r : training.recording->records())
    if (r.operation == "all_gather" && r.group.empty()) world += r.bytes_sent;
  EXPECT_EQ(world, 4 * blocks * 128 / ranks() * (ranks() - 1)) << "the biases, which train";
}

TEST(SecondaryShards, AreWithoutShardGroups) {
  auto const comm = make_comm();
  auto const compute = memory::make_inline_queue("compute");
  auto const make = [&](int groups, int secondary) {
    auto config = config_of(3);
    states_of(config).shard_group_size = groups;
    weights_of(config).secondary_group_size = secondary;
    (void)zero::make_engine(config, QuadraticModel(1).units(), *comm, *compute);
  };
  EXPECT_THROW(make(2, 2), InternalError);
  EXPECT_THROW(make(0, 0), InternalError);
  EXPECT_THROW(make(0, session().info().world_size + 1), ConfigError);
}

}  // namespace
}  // namespace tessera::test
