/// Gradients that are not finite: all ranks agree, nothing changes, and the loss scale follows its
/// rules.
#include <limits>

#include "engine_fixture.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// One bad element, on one rank only.
QuadraticModel::Spoil spoil_on(int rank, float value) {
  bool const mine = session().info().rank == rank;
  return [=](UnitIndex unit, int parameter, std::int64_t i, float g) {
    return mine && unit == UnitIndex(2) && parameter == 0 && i == 3 ? value : g;
  };
}

/// Addends that a sum of doubles rounds differently in another order, and counts beyond fp32.
TEST(ValuesOfAStep, AreSummedOverTheRanksWithTheNorm) {
  auto const& info = session().info();
  zero::StepValues values;
  values.addends = {1e16, 0.0, -1e16};
  values.counts.fill(info.rank);
  values.counts.back() = (std::int64_t{1} << 40) + info.rank;
  std::int64_t const of_ranks = std::int64_t{info.world_size} * (info.world_size - 1) / 2;
  for (int stage = 0; stage <= 3; ++stage)
    for (auto const order : {zero::SumOrder::ranks, zero::SumOrder::tree})
      for (bool const waits : {true, false}) {  // for the sums, before the update
        auto config = config_of(stage);
        config.sum_order = order;
        Training without(config);
        config.skip_on_nonfinite = waits;
        Training with(config);
        for (int i = 0; i < 2; ++i) {  // the values of one step are not those of the next
          values.addends[1] = 1.0 + i + info.rank;
          auto const result = with.step(1e-2, values), plain = without.step(1e-2);
          EXPECT_EQ(result.grad_norm, plain.grad_norm);
          EXPECT_EQ(plain.sums.addends, 0.0);
          double const exact = static_cast<double>((1 + i) * info.world_size + of_ranks);
          bool const is_exact = order == zero::SumOrder::tree;  // else a rank loses at most 2
          EXPECT_NEAR(result.sums.addends, exact, is_exact ? 0.0 : 2.0 * info.world_size);
          EXPECT_EQ(result.sums.counts.front(), of_ranks);
          EXPECT_EQ(result.sums.counts.back(),
                    info.world_size * (std::int64_t{1} << 40) + of_ranks);
        }
        EXPECT_EQ(with.weights(), without.weights());
      }
}

class Overflow : public ::testing::TestWithParam<int> {
 protected:
  int last_rank() const { return session().info().world_size - 1; }
};

TEST_P(Overflow, OnOneRankSkipsTheStepOnAll) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
    for (float const bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      auto config = config_of(GetParam(), dtype);
      config.accumulation_steps = 2;
      config.communication_dtype = Dtype::fp32;
      Training training(config);
      SerialTraining serial(config, training.model, training.ranks());
      serial.step(1e-2);
      training.step(1e-2);
      auto const before = training.weights();
      training.model.spoil = spoil_on(last_rank(), bad);
      auto const skipped = training.step(1e-2);
      EXPECT_TRUE(skipped.skipped);
      EXPECT_EQ(skipped.grad_norm, infinity);
      EXPECT_EQ(training.weights(), before);
      EXPECT_EQ(training.engine->optimizer_steps(), 1);
      // nothing of the bad step stays behind
      training.model.spoil = {};
      EXPECT_FALSE(training.step(1e-2).skipped);
      serial.step(1e-2);
      double const tolerance = dtype == Dtype::fp32 ? 2e-6 : 1e-4;
      for (std::size_t which = 0; which < 3; ++which)
        EXPECT_LT(state_difference(training, which, serial), tolerance) << name_of(dtype);
    }
}

TEST_P(Overflow, ContinuesWhenTheCheckIsOff) {
  auto config = config_of(GetParam(), Dtype::bf16);
  config.skip_on_nonfinite = false;
  Training training(config);
  training.model.spoil = spoil_on(last_rank(), infinity);
  auto const result = training.step(1e-2);
  EXPECT_FALSE(result.skipped);
  EXPECT_EQ(result.grad_norm, infinity);
  EXPECT_EQ(training.engine->optimizer_steps(), 1);
}

TEST_P(Overflow, Fp16SkipsEvenSo) {
  auto config = config_of(GetParam(), Dtype::fp16);
  config.skip_on_nonfinite = false;
  Training training(config);
  training.model.spoil = spoil_on(0, infinity);
  EXPECT_TRUE(training.step(1e-2).skipped);
}

/// Window 2, hysteresis 2, first scale 2^4: grows at iteration 2, absorbs one overflow, halves at
/// the next, grows again after a window. Gradients are always divided by the scale that produced
/// them: every norm and every moment is the serial training's.
TEST_P(Overflow, ScaleFollowsTheDynamicRules) {
  auto config = config_of(GetParam(), Dtype::fp16);
  config.loss_scaler = {.dynamic = true, .initial_scale_power = 4, .window = 2, .hysteresis = 2};
  Training training(config);
  SerialTraining serial(config, training.model, training.ranks());
  struct Row {
    bool overflow;
    double scale;
  };
  for (Row const row : {Row{false, 16},
                        {false, 16},
                        {false, 16},
                        {true, 32},
                        {true, 32},
                        {false, 16},
                        {false, 16},
                        {false, 16},
                        {false, 32}}) {
    EXPECT_EQ(training.engine->loss_scale(), row.scale);
    training.model.spoil = row.overflow ? spoil_on(last_rank(), infinity) : QuadraticModel::Spoil{};
    auto const result = training.step(1e-3);
    EXPECT_EQ(result.loss_scale, row.scale);
    EXPECT_EQ(result.skipped, row.overflow);
    if (row.overflow) continue;
    double const norm = serial.step(1e-3);
    EXPECT_NEAR(result.grad_norm, norm, 1e-3 * norm);
    for (std::size_t which = 0; which < 3; ++which)
      EXPECT_LT(state_difference(training, which, serial), 1e-4)
          << "after " << serial.steps() << " steps";
  }
  EXPECT_EQ(training.engine->optimizer_steps(), 7);
  EXPECT_EQ(training.engine->scaler_state().iteration, 9);
  EXPECT_EQ(training.engine->scaler_state().last_overflow, 4);
}

INSTANTIATE_TEST_SUITE_P(Stages, Overflow, ::testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace tessera::test
