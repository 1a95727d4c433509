/// Model states that are shared within groups of two ranks (MiCS, HSDP), against a serial optimizer
/// and against states that all ranks share: values, bytes per group, memory.
#include "layout/shard_groups.hpp"

#include "engine_fixture.hpp"
#include "engine_settings.hpp"

namespace tessera::test {
namespace {

using namespace tied_model;

constexpr int group_size = 2;

int ranks() { return session().info().world_size; }
bool has_nodes_of_two() {
  auto const& nodes = session().nodes();
  return ranks() == 4 && nodes[0] == nodes[1] && nodes[2] == nodes[3] && nodes[1] != nodes[2];
}

zero::EngineConfig grouped(zero::EngineConfig config) {
  states_of(config).shard_group_size = group_size;
  return config;
}

struct Scenario {
  std::string name;
  zero::EngineConfig config;
  /// Tolerance of master weights; one step changes them by the learning rate
  double tolerance = 2e-6;
  double norm_tolerance = 2e-7;
};
void PrintTo(Scenario const& s, std::ostream* out) { *out << s.name; }

std::vector<Scenario> scenarios() {
  std::vector<Scenario> out;
  auto const add = [&](std::string const& name, Dtype dtype, auto change, double tolerance,
                       double norm_tolerance) {
    for (int stage = 1; stage <= 3; ++stage) {
      Scenario s{concat(name, "_stage_", stage), grouped(config_of(stage, dtype)), tolerance,
                 norm_tolerance};
      change(s.config);
      out.push_back(s);
    }
  };
  auto const fp32 = [&](std::string const& name, auto change) {
    add(name, Dtype::fp32, change, 2e-6, 2e-7);
  };
  fp32("plain", [](auto&) {});
  fp32("clipped_accumulated", [](auto& c) {
    c.max_grad_norm = 0.5;
    c.accumulation_steps = 2;
  });
  fp32("no_overlap", [](auto& c) { c.overlap_comm = false; });
  fp32("small_buckets", [](auto& c) { c.reduce_bucket_size = c.allgather_bucket_size = 100; });
  fp32("lamb", [](auto& c) { c.optimizer = optim::make_spec("Lamb", {{"weight_decay", 0.1}}); });
  fp32("adafactor", [](auto& c) {
    c.optimizer = optim::make_spec("Adafactor", {{"weight_decay", 0.1}, {"scale_parameter", 1.0}});
  });
  fp32("muon", [](auto& c) { c.optimizer = optim::make_spec("Muon", {{"weight_decay", 0.1}}); });
  for (Dtype const dtype : {Dtype::bf16, Dtype::fp16}) {
    add(
        concat(name_of(dtype), "_fp32_wire_accumulated"), dtype,
        [](auto& c) {
          c.accumulation_steps = 2;
          c.communication_dtype = Dtype::fp32;
        },
        1e-4, 1e-3);
    add(
        concat(name_of(dtype), "_accumulated"), dtype, [](auto& c) { c.accumulation_steps = 2; },
        2e-2, 1e-2);
  }
  return out;
}

class ShardGroups : public ::testing::TestWithParam<Scenario> {};

TEST_P(ShardGroups, TrainAsTheSerialOptimizerDoes) {
  if (ranks() % group_size != 0) GTEST_SKIP() << ranks() << " ranks are no groups of two";
  auto const& scenario = GetParam();
  Training training(scenario.config);
  SerialTraining serial(scenario.config, training.model, ranks());
  for (int k = 1; k <= 4; ++k) {
    double const rate = 1e-2 / k, norm = serial.step(rate);
    auto const result = training.step(rate);
    EXPECT_FALSE(result.skipped);
    EXPECT_NEAR(result.grad_norm, norm, scenario.norm_tolerance * norm) << "step " << k;
  }
  EXPECT_EQ(training.engine->plan().ranks(), group_size);
  // weights of 16 bits may round to the neighbor of the serial ones
  Dtype const dtype = scenario.config.dtype;
  EXPECT_LE(
      weight_difference(training, serial),
      dtype == Dtype::fp32 ? scenario.tolerance : std::ldexp(1.0, dtype == Dtype::bf16 ? -6 : -9));
  EXPECT_TRUE(same_on_all_ranks(*training.recording, training.weights()))
      << "every copy of the states has the same bits";
}

INSTANTIATE_TEST_SUITE_P(All, ShardGroups, ::testing::ValuesIn(scenarios()),
                         [](auto const& info) { return info.param.name; });
/// Nodes of the size of the groups: the sums of all ranks are those of the nodes' sums, too.
TEST(ShardGroups, OfANodeHaveTheBitsOfStatesThatAllRanksShare) {
  if (!has_nodes_of_two()) GTEST_SKIP() << "needs two nodes of two ranks";
  for (int stage = 1; stage <= 3; ++stage)
    for (Dtype const dtype : {Dtype::fp32, Dtype::bf16}) {
      Training groups(grouped(config_of(stage, dtype))), all(config_of(stage, dtype));
      for (int k = 0; k < 5; ++k) (void)groups.step(1e-2), (void)all.step(1e-2);
      EXPECT_EQ(groups.weights(), all.weights()) << "stage " << stage << " " << name_of(dtype);
    }
}

/// One copy has an infinite gradient: no copy updates.
TEST(ShardGroups, SkipAStepTogether) {
  if (ranks() != 4) GTEST_SKIP() << "needs two copies";
  Training training(grouped(config_of(3)));
  auto const before = training.weights();
  training.model.spoil = [&](UnitIndex, int, std::int64_t, float g) {
    return training.rank() == 3 ? INFINITY : g;
  };
  EXPECT_TRUE(training.step(1e-2).skipped);
  EXPECT_EQ(training.weights(), before);
}

/// P parameters, shares of S ranks, R copies, A micro-steps: inside a group as ZeRO on S ranks,
/// and 2 (R-1)/R P/S elements across once per step.
TEST(ShardGroups, SendOnceAcrossCopies) {
  if (ranks() != 4) GTEST_SKIP() << "needs two copies";
  for (int stage = 1; stage <= 3; ++stage)
    for (Dtype const dtype : {Dtype::fp32, Dtype::bf16}) {
      auto config = grouped(config_of(stage, dtype));
      config.accumulation_steps = 2;
      Training training(config, QuadraticModel(blocks, true));
      (void)training.step(1e-2);
      training.recording->clear();
      (void)training.step(1e-2);
      std::size_t const once = parameters / group_size * size_of(dtype);
      std::size_t inside = 0, across = 0;
      for (auto const& r : training.recording->records()) {
        if (r.dtype == Dtype::fp64) continue;  // the statistics, over all ranks
        EXPECT_EQ(r.operation == "all_reduce", r.group.starts_with("replica group")) << r.operation;
        EXPECT_EQ(r.operation != "all_reduce", r.group.starts_with("shard group")) << r.group;
        (r.operation == "all_reduce" ? across : inside) += r.bytes_sent;
      }
      EXPECT_EQ(inside, (stage == 1 ? 2 : stage == 2 ? 3 : 4) * once) << "stage " << stage;
      EXPECT_EQ(across, once) << "2 (R-1)/R of the shard";
    }
}

TEST(ShardGroups, ReduceOnceInsideAndAcrossOnRequest) {
  if (ranks() != 4) GTEST_SKIP() << "needs two copies";
  for (int const stage : {2, 3}) {
    auto config = grouped(config_of(stage));
    config.accumulation_steps = 4;
    set_reduce_once(config);
    Training training(config, QuadraticModel(blocks, true));
    (void)training.step(1e-2);
    training.recording->clear();
    (void)training.step(1e-2);
    std::size_t inside = 0, across = 0;
    for (auto const& r : training.recording->records()) {
      if (r.operation == "reduce_scatter") inside += r.bytes_sent;
      if (r.group.starts_with("replica group")) across += r.bytes_sent;
    }
    EXPECT_EQ(inside, parameters / group_size * size_of(Dtype::fp32)) << "stage " << stage;
    EXPECT_EQ(across, inside);
  }
}

TEST(ShardGroups, HoldTheirPartOfTheStates) {
  if (ranks() % group_size != 0) GTEST_SKIP() << ranks() << " ranks are no groups of two";
  for (int stage = 1; stage <= 3; ++stage) {
    Training training(grouped(config_of(stage, Dtype::bf16)), QuadraticModel(blocks, true));
    (void)training.step(1e-2);
    auto const m = training.engine->memory();
    std::size_t const n = parameters, s = group_size;
    EXPECT_EQ(m.weights, 2 * n / (stage == 3 ? s : 1));
    EXPECT_EQ(m.gradients, 2 * n / (stage >= 2 ? s : 1));
    EXPECT_EQ(m.master_weights + m.optimizer_state, 12 * n / s);
    EXPECT_EQ(m.formula, m.weights + m.gradients + m.master_weights + m.optimizer_state);
  }
}

/// The ranks along axis shard share a copy; along every other axis are copies.
TEST(ShardGroups, AreAlongAxisShardOfAMesh) {
  if (ranks() != 4) GTEST_SKIP() << "needs two copies";
  using topology::Axis;
  for (int stage = 0; stage <= 3; ++stage) {
    auto const config = stage == 0 ? config_of(0) : grouped(config_of(stage));
    Training reference(config);
    for (Axis const copies : {Axis::replicate, Axis::sequence, Axis::expert}) {
      Training training(config_of(stage));
      comm::Mesh mesh(*training.recording,
                      topology::Mesh({{copies, 2}, {Axis::shard, group_size}}));
      training.engine =
          zero::make_engine(config_of(stage), training.model.units(), mesh, *training.compute);
      training.initialize();
      EXPECT_EQ(training.engine->plan().ranks(), stage == 0 ? 4 : group_size);
      EXPECT_EQ(zero::settings<zero::ShardedStates>(training.engine->config()).shard_group_size,
                stage == 0 ? 0 : group_size);
      for (int k = 0; k < 3; ++k) (void)training.step(1e-2);
      if (copies == Axis::replicate)
        for (int k = 0; k < 3; ++k) (void)reference.step(1e-2);
      EXPECT_EQ(training.weights(), reference.weights()) << "stage " << stage;
      training.engine.reset();
    }
  }
}

/// The axis of the shards may be the outer one: ranks 0 and 2 share a copy.
TEST(ShardGroups, NeedNotBeConsecutive) {
  if (ranks() != 4) GTEST_SKIP() << "needs two copies";
  using topology::Axis;
  for (int stage = 1; stage <= 3; ++stage) {
    Training training(config_of(stage));
    comm::Mesh mesh(*training.recording,
                    topology::Mesh({{Axis::shard, group_size}, {Axis::replicate, 2}}));
    training.engine =
        zero::make_engine(config_of(stage), training.model.units(), mesh, *training.compute);
    training.initialize();
    SerialTraining serial(config_of(stage), training.model, ranks());
    for (int k = 0; k < 3; ++k) {
      double const norm = serial.step(1e-2);
      EXPECT_NEAR(training.step(1e-2).grad_norm, norm, 2e-7 * norm) << "one copy is counted";
    }
    EXPECT_LE(weight_difference(training, serial), 2e-6);
    EXPECT_TRUE(same_on_all_ranks(*training.recording, training.weights()));
    training.engine.reset();
  }
}

TEST(ShardGroups, OfAMeshDoNotContradictTheConfiguration) {
  auto const comm = make_comm();
  auto const compute = memory::make_inline_queue("compute");
  comm::Mesh mesh(*comm, topology::data_parallel_mesh(ranks()));
  auto config = config_of(3);
  states_of(config).shard_group_size = ranks() + 1;
  EXPECT_THROW((void)zero::make_engine(config, QuadraticModel(1).units(), mesh, *compute),
               InternalError);
}

TEST(ShardGroups, DivideTheRanks) {
  auto const comm = make_comm();
  auto const compute = memory::make_inline_queue("compute");
  auto const make = [&](int size) {
    auto config = config_of(3);
    states_of(config).shard_group_size = size;
    (void)zero::make_engine(config, QuadraticModel(1).units(), *comm, *compute);
  };
  EXPECT_THROW(make(ranks() + 1), ConfigError);
  EXPECT_THROW(make(-1), Error);
  if (ranks() > 1) {
    EXPECT_THROW(make(1), InternalError);
  }
  if (ranks() == 3) {
    EXPECT_THROW(make(2), ConfigError);
  }
  EXPECT_NO_THROW(make(ranks())) << "one group of all";
}

TEST(ShardGroups, AreConsecutiveRanks) {
  auto const comm = make_comm();
  auto const mesh_of = [&](int group) {
    return std::make_shared<comm::Mesh>(*comm, topology::data_parallel_mesh(ranks(), group));
  };
  zero::detail::ShardGroups const one(mesh_of(0), config_of(3));
  EXPECT_EQ(&one.shards(), comm.get());
  EXPECT_EQ(one.replicas(), nullptr);
  EXPECT_EQ(one.copies(), 1);
  if (ranks() != 4) return;
  zero::detail::ShardGroups const two(mesh_of(group_size), grouped(config_of(3)));
  EXPECT_EQ(two.shards().size(), 2);
  EXPECT_EQ(two.shards().rank(), comm->rank() % 2);
  EXPECT_EQ(two.replicas()->rank(), comm->rank() / 2);
  EXPECT_EQ(two.copies(), 2);
  EXPECT_EQ(&two.world(), comm.get());
}

}  // namespace
}  // namespace tessera::test
