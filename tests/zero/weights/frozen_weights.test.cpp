/// Frozen parameters keep their weights and cost nothing else; the others train as ever.
#include "weights/frozen_weights.hpp"

#include <filesystem>

#include "engine_fixture.hpp"
#include "engine_settings.hpp"
#include "tessera/memory/swap_file.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::test {
namespace {

struct Case {
  int stage;
  Dtype dtype;
  std::vector<std::string> trained;
};
void PrintTo(Case const& c, std::ostream* out) {
  *out << "stage " << c.stage << " " << name_of(c.dtype) << " " << c.trained[0];
}

class Frozen : public ::testing::TestWithParam<Case> {
 protected:
  zero::EngineConfig config() const {
    auto c = config_of(GetParam().stage, GetParam().dtype);
    c.accumulation_steps = 2;
    return c;
  }
  QuadraticModel model() const { return QuadraticModel(3).train_only(GetParam().trained); }
};

using Weights = std::map<std::pair<std::string, std::int64_t>, float>;

Weights weights_of(Training& training) {
  Weights out;
  training.model.look(*training.engine, *training.compute,
                      [&](UnitIndex u, int p, std::int64_t i, float value) {
                        auto const& unit = training.model.units()[position(u)];
                        auto const& name = unit.parameters[static_cast<std::size_t>(p)].name;
                        out[{concat(unit.name, ".", name), i}] = value;
                      });
  return out;
}

/// Without clipping an element's gradient depends on the element only.
TEST_P(Frozen, OthersTrainBitForBitAsWithoutIt) {
  Training partly(config(), model()), fully(config());
  auto const before = weights_of(partly);
  EXPECT_EQ(before, weights_of(fully));
  for (int k = 1; k <= 3; ++k) {
    partly.step(1e-2);
    fully.step(1e-2);
  }
  auto const after = weights_of(partly), all = weights_of(fully);
  for (auto const& [at, value] : after) {
    auto const name = at.first.substr(at.first.rfind('.') + 1);
    auto const& trained = GetParam().trained;
    bool const trains = std::find(trained.begin(), trained.end(), name) != trained.end();
    ASSERT_EQ(value, (trains ? all : before).at(at)) << at.first << " " << at.second;
  }
}

TEST_P(Frozen, OnlyWeightsExistOfThem) {
  Training training(config(), model());
  training.step(1e-2);
  auto const n = static_cast<std::size_t>(training.ranks());
  auto const stage = GetParam().stage;
  auto const& engine = *training.engine;
  auto const trained = static_cast<std::size_t>(engine.plan().padded_count()),
             frozen = static_cast<std::size_t>(engine.frozen_plan().padded_count());
  std::int64_t expected = 0;
  for (auto const& unit : training.model.units())
    for (auto const& p : unit.parameters) expected += p.trains ? p.numel() : 0;
  EXPECT_EQ(engine.plan().parameter_count(), expected);
  EXPECT_GT(frozen, 0u);

  auto const memory = engine.memory();
  bool const is_fp32 = GetParam().dtype == Dtype::fp32;
  EXPECT_EQ(memory.weights, (trained + frozen) * size_of(GetParam().dtype) / (stage == 3 ? n : 1));
  EXPECT_EQ(memory.gradients, trained * 4 / (stage >= 2 ? n : 1));
  EXPECT_EQ(memory.master_weights, is_fp32 ? 0 : trained * 4 / (stage >= 1 ? n : 1));
  EXPECT_EQ(memory.optimizer_state, trained * 8 / (stage >= 1 ? n : 1));
}

TEST_P(Frozen, ShardsHoldTheInitialValues) {
  Training training(config(), model());
  auto const& plan = training.engine->frozen_plan();
  auto const in_model = zero::frozen_parameters(training.model.units()).in_model;
  std::size_t seen = 0;
  for (auto const& extent : plan.extents(Rank(training.rank()))) {
    auto const shard = training.engine->frozen_shard(extent.unit);
    auto const at = plan.unit(extent.unit).shard_offset(extent.partition_offset).value();
    auto const parameter = static_cast<int>(
        in_model[position(extent.unit)][static_cast<std::size_t>(extent.parameter)]);
    for (std::int64_t i = 0; i < extent.numel; ++i, ++seen)
      ASSERT_EQ(shard[static_cast<std::size_t>(at + i)],
                rounded(QuadraticModel::initial(extent.unit, parameter,
                                                extent.parameter_offset.value() + i),
                        GetParam().dtype));
  }
  if (training.ranks() == 1) {
    EXPECT_EQ(static_cast<std::int64_t>(seen), plan.parameter_count());
  }
}

/// Units with nothing to train; a tied matrix that is frozen; one that is not.
std::vector<Case> cases() {
  std::vector<Case> out;
  for (int stage = 0; stage <= 3; ++stage)
    for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
      for (auto const& trained :
           std::vector<std::vector<std::string>>{{"b", "s"}, {"wpe", "k"}, {"wte", "norm"}})
        out.push_back({stage, dtype, trained});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Stages, Frozen, ::testing::ValuesIn(cases()));

TEST(FrozenParameters, SomeParametersMustTrain) {
  try {
    Training training(config_of(0), QuadraticModel(1).train_only({}));
    FAIL() << "an engine without parameters that train";
  } catch (ConfigError const& e) {
    EXPECT_STREQ(e.what(),
                 "no parameter trains: all are frozen; leave some out of the frozen "
                 "parameters");
  }
}

TEST(FrozenParameters, EveryOptimizerLeavesThemOut) {
  for (auto const& info : optim::optimizers()) {
    for (int stage : {0, 3}) {
      auto config = config_of(stage);
      config.optimizer = optim::make_spec(info.algorithm);
      if (stage > 0 && optim::is_compressing(config.optimizer)) continue;
      Training training(config, QuadraticModel(2).train_only({"w", "b"}));
      auto const before = weights_of(training);
      EXPECT_FALSE(training.step(1e-2).skipped) << info.algorithm;
      auto const after = weights_of(training);
      EXPECT_EQ(after.at({"embedding.wte", 3}), before.at({"embedding.wte", 3}));
      EXPECT_NE(after.at({"block.1.w", 3}), before.at({"block.1.w", 3})) << info.algorithm;
    }
  }
}

memory::SwapOptions to_the_drive() {
  return {.directories = {std::filesystem::path(::testing::TempDir())},
          .block_size = memory::swap_alignment,
          .queue_depth = 2};
}

/// All weights on the drive, the first units in memory, and all of them in memory.
TEST(FrozenParameters, OnADriveChangeNoBit) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16})
    for (auto const& trained : std::vector<std::vector<std::string>>{{"b", "s"}, {"wte", "norm"}})
      for (std::int64_t const in_memory : {0, 300, 1000000}) {
        auto config = config_of(3, dtype);
        Training in_ram(config, QuadraticModel(3).train_only(trained));
        test::weights_of(config).weight_swap = {to_the_drive(), 2, 100000, in_memory};
        Training swapped(config, QuadraticModel(3).train_only(trained));
        auto const& plan = swapped.engine->frozen_plan();
        auto const memory = swapped.engine->memory();
        EXPECT_EQ(memory.swapped > 0, in_memory < 1000000);
        EXPECT_EQ(memory.weights == 0, in_memory == 0);
        for (int k = 1; k <= 3; ++k) {
          in_ram.step(1e-2);
          swapped.step(1e-2);
          EXPECT_EQ(weights_of(swapped), weights_of(in_ram)) << in_memory;
          for (auto u = first_unit; u < plan.end_unit(); ++u)  // as a save between steps
            EXPECT_EQ(swapped.engine->frozen_shard(u), in_ram.engine->frozen_shard(u));
        }
      }
}

/// Each store gets its part of the elements that may be gathered.
TEST(FrozenParameters, ShareTheLimitsOfGatheredWeights) {
  zero::PartitionPlan const few({{"u", {{"a", {32}, {}, true, {}}}}}, 1),
      many({{"u", {{"b", {96}, {}, true, {}}}}}, 1), none({}, 1);
  zero::ShardedWeights weights;
  weights.prefetch_bucket_size = 1000;
  weights.max_live_parameters = 400;
  weights.weight_swap.emplace().memory_numel = 10;
  auto const shares = [&](auto const& part, auto const& other) {
    zero::EngineConfig config;
    config.partition = weights;
    config = zero::detail::with_share_of_limits(config, part, other);
    return std::get<zero::ShardedWeights>(config.partition);
  };
  auto const of_few = shares(few, many), of_many = shares(many, few), of_all = shares(many, none);
  EXPECT_EQ(of_few.prefetch_bucket_size, 250);
  EXPECT_EQ(of_few.max_live_parameters, 100);
  EXPECT_EQ(of_many.prefetch_bucket_size, 750);
  EXPECT_EQ(of_all.max_live_parameters, 400);
  EXPECT_EQ(of_few.weight_swap->memory_numel, 3);  // rounded up
  EXPECT_EQ(of_many.weight_swap->memory_numel, 8);
}

}  // namespace
}  // namespace tessera::test
