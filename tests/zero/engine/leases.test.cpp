/// What a lease promises, and what happens to those who do not keep to the protocol.
#include "engine_fixture.hpp"
#include "engine_settings.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {
namespace {

class Leases : public ::testing::TestWithParam<int> {};

/// Two units at a time, both valid to the end of the scope, whatever else is gathered meanwhile.
TEST_P(Leases, HoldTheirUnitWhileTheyLive) {
  auto config = config_of(GetParam());
  set_prefetch(config, 0);
  Training training(config);
  bool seen = false;
  training.model.watch = [&](memory::WeightLease const& head,
                             memory::WeightLease const& embedding) {
    seen = true;
    for (std::int64_t i = 0; i < head[0].numel(); ++i)
      EXPECT_EQ(load(head[0], i), QuadraticModel::initial(training.model.head(), 0, i));
    for (std::int64_t i = 0; i < embedding[0].numel(); ++i)
      EXPECT_EQ(load(embedding[0], i), QuadraticModel::initial(first_unit, 0, i));
    EXPECT_EQ(embedding[0].dim(0), 37);
    EXPECT_EQ(embedding[1].dim(1), 5);
  };
  training.step(1e-2);
  EXPECT_TRUE(seen);
}

TEST_P(Leases, NestOnOneUnit) {
  Training training(config_of(GetParam()));
  auto& engine = *training.engine;
  engine.begin_pass(memory::Pass::evaluation,
                    {UnitIndex(1), UnitIndex(2), UnitIndex(1), UnitIndex(1)});
  auto outer = engine.acquire(UnitIndex(1), *training.compute);
  (void)engine.acquire(UnitIndex(2), *training.compute);
  { auto const inner = engine.acquire(UnitIndex(1), *training.compute); }
  for (std::int64_t i = 0; i < outer[0].numel(); ++i)
    ASSERT_EQ(load(outer[0], i), QuadraticModel::initial(UnitIndex(1), 0, i));
  outer = engine.acquire(UnitIndex(1), *training.compute);
  for (std::int64_t i = 0; i < outer[0].numel(); ++i)
    ASSERT_EQ(load(outer[0], i), QuadraticModel::initial(UnitIndex(1), 0, i));
}

TEST_P(Leases, AcquisitionsFollowTheAnnouncement) {
  Training training(config_of(GetParam()));
  auto& engine = *training.engine;
  engine.begin_pass(memory::Pass::evaluation, {UnitIndex(0), UnitIndex(1)});
  (void)engine.acquire(UnitIndex(0), *training.compute);
  EXPECT_THROW((void)engine.acquire(UnitIndex(2), *training.compute), InternalError);
  (void)engine.acquire(UnitIndex(1), *training.compute);
  EXPECT_THROW((void)engine.acquire(UnitIndex(1), *training.compute), InternalError);
  EXPECT_THROW(engine.begin_pass(memory::Pass::evaluation, {UnitIndex(99)}), InternalError);
}

TEST_P(Leases, GradientsAreCompleteOncePerMicroStep) {
  auto config = config_of(GetParam());
  config.accumulation_steps = 2;
  Training training(config);
  auto& engine = *training.engine;
  auto& compute = *training.compute;
  EXPECT_THROW((void)engine.gradient(UnitIndex(0), compute), InternalError)
      << "outside a micro-step";
  engine.begin_step();
  EXPECT_THROW(engine.begin_micro_step(0, 3), InternalError) << "more micro-steps than configured";
  engine.begin_micro_step(0, 2);
  EXPECT_THROW(engine.gradient_complete(UnitIndex(1), compute), InternalError)
      << "nothing was written";
  EXPECT_FALSE(engine.gradient(UnitIndex(1), compute).accumulate());
  EXPECT_TRUE(engine.gradient(UnitIndex(1), compute).accumulate());
  engine.gradient_complete(UnitIndex(1), compute);
  EXPECT_THROW((void)engine.gradient(UnitIndex(1), compute), InternalError)
      << "after it was complete";
  EXPECT_THROW(engine.gradient_complete(UnitIndex(1), compute), InternalError) << "twice";
  EXPECT_THROW(engine.begin_micro_step(1, 2), InternalError) << "other units are missing";
  EXPECT_THROW((void)engine.finish_step(1e-3), InternalError) << "other units are missing";
}

INSTANTIATE_TEST_SUITE_P(Stages, Leases, ::testing::Values(0, 1, 2, 3));

TEST(GatheredLeases, MustEndBeforeTheUpdate) {
  if (session().info().world_size == 1) return;  // one rank gathers nothing
  Training training(config_of(3));
  training.step(1e-2);
  training.engine->begin_pass(memory::Pass::evaluation, {UnitIndex(1)});
  auto const kept = training.engine->acquire(UnitIndex(1), *training.compute);
  EXPECT_THROW(
      training.engine->initialize([](UnitIndex, int, std::int64_t, std::int64_t, float*) {}),
      InternalError);
}

#ifdef TESSERA_ASSERTIONS
TEST(GatheredLeases, AreUnreadableAfterwards) {
  if (session().info().world_size == 1) return;
  auto config = config_of(3);
  set_prefetch(config, 0);
  Training training(config);
  training.engine->begin_pass(memory::Pass::evaluation, {UnitIndex(1), UnitIndex(2), UnitIndex(3)});
  memory::ConstTensorView stale;
  {
    auto const lease = training.engine->acquire(UnitIndex(1), *training.compute);
    stale = lease[0];
    EXPECT_EQ(load(stale, 0), QuadraticModel::initial(UnitIndex(1), 0, 0));
  }
  for (std::int64_t i = 0; i < stale.numel(); ++i) EXPECT_TRUE(std::isnan(load(stale, i)));
}
#endif

TEST(GatheredLeases, UseNoMoreMemoryAfterTheFirstStep) {
  for (std::int64_t const prefetch : {0, 400, 50'000'000}) {
    auto config = config_of(3);
    config.accumulation_steps = 2;
    set_prefetch(config, prefetch);
    Training training(config);
    training.step(1e-2);
    auto const first = training.engine->memory().buffers;
    for (int k = 0; k < 3; ++k) training.step(1e-2);
    EXPECT_EQ(training.engine->memory().buffers, first) << "prefetch " << prefetch;
  }
}

/// Without prefetch: the units in use and one ahead, the gradients of one unit in flight and of one
/// on their way.
TEST(GatheredLeases, TakeMemoryThatDoesNotGrowWithDepth) {
  if (session().info().world_size == 1) return;
  auto const blocks = [](int count) {
    QuadraticModel const model(count, true);
    auto c = config_of(3);
    set_prefetch(c, 0);
    Training training(c, model);
    training.step(1e-2);
    return training.engine->memory().buffers;
  };
  EXPECT_EQ(blocks(4), blocks(12));
}

}  // namespace
}  // namespace tessera::test
