/// 15 steps of every optimizer in the engine against PyTorch, transformers and DeepSpeed: the
/// trajectories of tests/oracles/{optimizers,adafactor,muon}.py with parameters that are spread
/// over the ranks. Each case runs at one stage and in one dtype; with TESSERA_ALL_STAGES in all.
#include <cstdlib>
#include <set>

#include "../optim/trajectory.hpp"
#include "mpi_test.hpp"
#include "quadratic_model.hpp"
#include "tessera/comm/host_collectives.hpp"
#include "tessera/optim/last_step.hpp"
#include "tessera/zero/engine.hpp"

namespace tessera::test {
namespace {

using optim::test::Floats;
using optim::test::floats_of;

/// A parameter of the oracle's values, several times one below the other: rules by elements, rows,
/// columns and root mean squares give every copy the same weights.
struct Copies {
  Copies(ConfigTree const& oracle, ConfigTree const& stored)
      : start(floats_of(oracle.at("start"))),
        count(stored.at("algorithm").as_string() == "Muon" ? 1 : 5) {
    shape = {static_cast<std::int64_t>(start.size())};
    if (auto const* given = stored.find("shape")) {
      shape.clear();
      for (auto const& n : given->as_array()) shape.push_back(n.as_int());
    }
    shape[0] *= count;
  }
  float of(Floats const& values, std::int64_t i) const {
    return values[static_cast<std::size_t>(i) % values.size()];
  }

  Floats start;
  std::int64_t count;
  std::vector<std::int64_t> shape;
};

/// The master weights of this rank after the stored steps.
void expect_weights(ConfigTree const& oracle, ConfigTree const& stored, int stage, Dtype dtype) {
  Copies const copies(oracle, stored);
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  zero::EngineConfig config;
  config.stage = stage;
  config.dtype = config.communication_dtype = dtype;
  config.optimizer = optim::test::spec_of(stored);
  std::vector<memory::UnitSpec> const units{{"unit", {{"w", copies.shape, {}, true, {}}}}};
  auto const engine = zero::make_engine(config, units, *comm, *compute, {});
  engine->initialize([&](UnitIndex, int, std::int64_t first, std::int64_t numel, float* out) {
    for (std::int64_t i = 0; i < numel; ++i) out[i] = copies.of(copies.start, first + i);
  });
  for (auto const& row : oracle.at("gradients").as_array()) {
    Floats const gradient = floats_of(row);
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    engine->begin_pass(memory::Pass::training, {first_unit});
    {
      auto const weights = engine->acquire(first_unit, *compute);
      auto const gradients = engine->gradient(first_unit, *compute);
      for (std::int64_t i = 0; i < gradients[0].numel(); ++i)
        store(gradients[0], i,
              rounded(copies.of(gradient, i), dtype) *
                  static_cast<float>(engine->gradient_scale() / comm->size()));
    }
    engine->gradient_complete(first_unit, *compute);
    EXPECT_FALSE(engine->finish_step(stored.at("lr").as_double()).skipped);
  }
  Floats const want = floats_of(
      stored.at(dtype == Dtype::fp32 ? std::string("weight") : concat("weight_", name_of(dtype))));
  auto const master = engine->state()[0];
  for (auto const& part : engine->plan().extents(Rank(comm->rank())))
    for (std::int64_t i = 0; i < part.numel; ++i) {
      float const w = copies.of(want, part.parameter_offset.value() + i);
      float const got = master.unit_shards[0][part.partition_offset.value() + i];
      ASSERT_NEAR(got, w, 2e-6 * std::abs(w) + 4e-7)
          << stored.at("algorithm").as_string() << " at stage " << stage << " in " << name_of(dtype)
          << ", element " << part.parameter_offset.value() + i;
    }
}

TEST(Trajectories, OfEveryOptimizerAreThoseOfTheOracles) {
  bool const all = std::getenv("TESSERA_ALL_STAGES") != nullptr;
  std::set<std::string> seen;
  int number = 0;
  for (char const* file : {"optimizers.json", "adafactor.json", "muon.json"}) {
    auto const oracle = ConfigTree::read(concat(TESSERA_TEST_DATA, "/oracles/", file));
    for (auto const& stored : oracle.at("cases").as_array()) {
      seen.insert(stored.at("algorithm").as_string());
      ++number;
      for (int stage = 0; stage <= 3; ++stage)
        for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
          if (all || (stage == number % 4 && static_cast<int>(dtype) == number / 4 % 3))
            expect_weights(oracle, stored, stage, dtype);
    }
  }
  for (auto const& info : optim::optimizers())
    EXPECT_TRUE(seen.contains(info.algorithm) || optim::last_step(optim::make_spec(info.algorithm)))
        << info.algorithm << " has no trajectory";
}

}  // namespace
}  // namespace tessera::test
