/// Weights for inference: every rank gathers the values that initialize() has set, and nothing of
/// gradients and the optimizer exists.
#include "engine_fixture.hpp"
#include "engine_settings.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {
namespace {

class WeightsOfInference : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<zero::Weights> make(zero::EngineConfig const& config,
                                      std::vector<memory::UnitSpec> const& units) {
    auto weights = zero::make_weights(config, units, *comm, *compute);
    weights->initialize(
        [](UnitIndex unit, int parameter, std::int64_t first, std::int64_t numel, float* out) {
          for (std::int64_t i = 0; i < numel; ++i)
            out[i] = QuadraticModel::initial(unit, parameter, first + i);
        });
    return weights;
  }
  void expect_initial_values(zero::Weights& weights) {
    for (int pass = 0; pass < 2; ++pass)
      model.look(weights, *compute, [](UnitIndex unit, int parameter, std::int64_t i, float value) {
        ASSERT_EQ(value, QuadraticModel::initial(unit, parameter, i));
      });
  }

  QuadraticModel model{3};
  std::unique_ptr<comm::Collectives> comm = comm::make_mpi(session(), std::chrono::seconds(60));
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
};

TEST_P(WeightsOfInference, AreTheInitialValues) {
  auto const weights = make(config_of(GetParam()), model.units());
  expect_initial_values(*weights);
  auto const memory = weights->memory();
  EXPECT_GT(memory.weights, 0u);
  EXPECT_EQ(memory.gradients + memory.master_weights + memory.optimizer_state, 0u);
}

/// Weights for inference report the weight bytes of an engine that trains, which has more.
TEST_P(WeightsOfInference, AreOnlyAPartOfAnEngine) {
  auto const weights = make(config_of(GetParam()), model.units())->memory();
  auto const engine =
      zero::make_engine(config_of(GetParam()), model.units(), *comm, *compute)->memory();
  EXPECT_EQ(weights.weights, engine.weights);
  EXPECT_LT(weights.formula, engine.formula);
}

/// Settings of the optimizer are those of training.
TEST_P(WeightsOfInference, NeedNoPlaceForOptimizerStates) {
  if (GetParam() == 0) return;
  auto config = config_of(GetParam());
  states_of(config).optimizer_swap = {{.directories = {"/proc/no directory"}}, 1000, 2};
  states_of(config).optimizer_offload.emplace();
  auto const weights = make(config, model.units());
  expect_initial_values(*weights);
  EXPECT_EQ(weights->memory().swapped, 0u);
  EXPECT_THROW((void)zero::make_engine(config, model.units(), *comm, *compute), Error);
}

TEST_P(WeightsOfInference, MayAllBeFrozen) {
  auto units = model.units();
  for (auto& unit : units)
    for (auto& parameter : unit.parameters) parameter.trains = false;
  auto const weights = make(config_of(GetParam()), units);
  expect_initial_values(*weights);
  EXPECT_EQ(weights->plan().parameter_count(), 0);
  EXPECT_GT(weights->frozen_plan().parameter_count(), 0);
  EXPECT_THROW((void)zero::make_engine(config_of(GetParam()), units, *comm, *compute), ConfigError);
}

TEST_P(WeightsOfInference, RefuseAModelWithoutUnits) {
  EXPECT_THROW((void)zero::make_weights(config_of(GetParam()), {}, *comm, *compute), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Stages, WeightsOfInference, ::testing::Range(0, 4));

}  // namespace
}  // namespace tessera::test
