/// OneBitAdam in the engine: its phases, its traffic, and what a checkpoint keeps of the errors.
#include "optimizer/compressed_update.hpp"

#include "engine_fixture.hpp"

namespace tessera::zero::detail {
namespace {

using namespace tessera::test;

constexpr int freeze_step = 3, steps = 8;
constexpr double rate = 1e-2;

EngineConfig config(double freeze = freeze_step) {
  auto c = config_of(0);
  c.optimizer = optim::make_spec("OneBitAdam", {{"freeze_step", freeze}}, optim::one_group());
  return c;
}

std::vector<float> values(Engine& engine, std::size_t state) {
  auto const views = engine.state();
  std::vector<float> out;
  for (std::size_t u = 0; u < views[state].unit_shards.size(); ++u) {
    auto const n = engine.plan().units()[u].shard_numel;
    out.insert(out.end(), views[state].unit_shards[u], views[state].unit_shards[u] + n);
  }
  return out;
}

TEST(CompressedUpdate, NamesThePhaseOfEachStep) {
  Training training(config());
  for (int t = 1; t <= steps; ++t)
    EXPECT_STREQ(training.step(rate).phase, t <= freeze_step ? "warm-up" : "compressed") << t;
}

TEST(CompressedUpdate, FreezesTheVarianceAndKeepsErrors) {
  Training training(config());
  for (int t = 1; t <= freeze_step; ++t) training.step(rate);
  auto const frozen = values(*training.engine, 2);
  for (int t = freeze_step + 1; t <= steps; ++t) training.step(rate);
  EXPECT_EQ(values(*training.engine, 2), frozen);
  double largest = 0.0;
  for (float const e : values(*training.engine, 3))
    largest = std::max(largest, std::abs(double{e}));
  EXPECT_GT(largest, 0.0);  // something was lost, and is kept
}

/// A run that is loaded from the states continues as the run that has shown them.
TEST(CompressedUpdate, ContinuesBitByBitFromItsStates) {
  Training first(config()), second(config());
  for (int t = 1; t <= freeze_step + 2; ++t) first.step(rate);
  auto const from = first.engine->state(), to = second.engine->state();
  ASSERT_EQ(from.size(), 5u);
  for (std::size_t k = 0; k < from.size(); ++k)
    for (std::size_t u = 0; u < from[k].unit_shards.size(); ++u)
      std::copy_n(from[k].unit_shards[u], first.engine->plan().units()[u].shard_numel,
                  to[k].unit_shards[u]);
  second.engine->load_state(first.engine->optimizer_steps(), first.engine->scaler_state());
  for (int t = 0; t < 3; ++t) {
    first.step(rate);
    second.step(rate);
  }
  for (std::size_t k = 0; k < from.size(); ++k)
    EXPECT_EQ(values(*first.engine, k), values(*second.engine, k)) << from[k].name;
}

/// After the warm-up no gradient is reduced.
TEST(CompressedUpdate, ReducesNoGradientsAfterTheWarmUp) {
  Training training(config());
  for (int t = 1; t <= freeze_step; ++t) training.step(rate);
  training.recording->clear();
  training.step(rate);
  for (auto const& r : training.recording->records())
    EXPECT_TRUE(r.operation != "all_reduce" || r.dtype == Dtype::fp64) << r.numel;
}

TEST(CompressedUpdate, IsOfStage0) {
  for (int stage = 1; stage <= 3; ++stage) {
    auto c = config();
    c.partition = zero::partition_of(stage);
    EXPECT_THROW(Training{c}, InternalError) << stage;
  }
}

}  // namespace
}  // namespace tessera::zero::detail
