/// 15 steps of every optimizer in the engine against PyTorch, transformers and DeepSpeed: the
/// trajectories of tests/oracles/{optimizers,adafactor,muon}.py with parameters that are spread
/// over the ranks. Each case runs at one stage and in one dtype; with TESSERA_ALL_STAGES in all.
#include <cstdlib>
#include <set>

#include "../optim/coded_case.hpp"
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

/// A training whose parameter is in codes, with one that is too small for them.
class CodedTraining {
 public:
  CodedTraining(optim::OptimizerSpec const& spec, int stage, Dtype dtype, std::int64_t numel)
      : comm_(comm::make_mpi(session(), std::chrono::seconds(60))),
        compute_(memory::make_inline_queue("compute")) {
    zero::EngineConfig config;
    config.stage = stage;
    config.dtype = config.communication_dtype = dtype;
    config.optimizer = spec;
    std::vector<memory::UnitSpec> const units{
        {"unit", {{"small", {300}, {}, true, {}}, {"w", {numel}, {}, true, {}}}}};
    engine_ = zero::make_engine(config, units, *comm_, *compute_, {});
    engine_->initialize([](UnitIndex, int, std::int64_t first, std::int64_t count, float* out) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = optim::test::coded_start(first + i);
    });
  }

  void step(std::int64_t t, double rate) {
    Dtype const dtype = engine_->config().dtype;
    engine_->begin_step();
    engine_->begin_micro_step(0, 1);
    engine_->begin_pass(memory::Pass::training, {first_unit});
    {
      auto const weights = engine_->acquire(first_unit, *compute_);
      auto const gradients = engine_->gradient(first_unit, *compute_);
      for (std::size_t p : {0, 1})
        for (std::int64_t i = 0; i < gradients[p].numel(); ++i)
          store(gradients[p], i,
                rounded(optim::test::coded_gradient(i, t), dtype) *
                    static_cast<float>(engine_->gradient_scale() / comm_->size()));
    }
    engine_->gradient_complete(first_unit, *compute_);
    EXPECT_FALSE(engine_->finish_step(rate).skipped);
  }

  /// Takes the state of @p other, of another stage, through fp32 copies as a checkpoint has them.
  void resume(CodedTraining& other) {
    auto const from = other.engine_->state();
    auto const to = engine_->state();
    for (std::size_t k = 0; k < from.size(); ++k)
      std::copy_n(from[k].unit_shards[0],
                  engine_->plan().of_extent(from[k].extent).partition_numel(),
                  to[k].unit_shards[0]);
    engine_->load_state(other.engine_->optimizer_steps(), other.engine_->scaler_state());
  }

  /// Calls @p check(element of w, value) for the elements of a state that this rank saves.
  template <class Check>
  void each(std::size_t state, Check const& check) {
    auto const view = engine_->state()[state];
    for (auto const& part : engine_->plan().of_extent(view.extent).extents(Rank(comm_->rank())))
      for (std::int64_t i = 0; part.parameter == 1 && i < part.numel; ++i)
        check(part.parameter_offset.value() + i,
              view.unit_shards[0][part.partition_offset.value() + i]);
  }
  zero::Engine& engine() { return *engine_; }

 private:
  std::unique_ptr<comm::Collectives> comm_;
  std::unique_ptr<memory::Queue> compute_;
  std::unique_ptr<zero::Engine> engine_;
};

/// In fp32 the weights and states of a rank have the bits of one process, also after a resume at
/// another stage. In 16 bits they are those of bitsandbytes.
void expect_codes(ConfigTree const& oracle, ConfigTree const& stored, int stage, Dtype dtype) {
  auto const spec = optim::test::spec_of(stored);
  std::int64_t const numel = oracle.at("numel").as_int(), steps = oracle.at("steps").as_int();
  double const rate = stored.at("lr").as_double();
  CodedTraining first(spec, stage, dtype, numel), second(spec, (stage + 1) % 4, dtype, numel);
  optim::test::CodedParameter one(spec, numel);
  for (std::int64_t t = 1; t <= steps; ++t) {
    if (t == steps / 2) second.resume(first);
    (t < steps / 2 ? first : second).step(t, rate);
    Floats gradients;
    for (std::int64_t i = 0; i < numel; ++i)
      gradients.push_back(rounded(optim::test::coded_gradient(i, t), dtype));
    one.step(t, rate, gradients);
  }
  auto const expect_bits = [&](std::size_t state, Floats const& want) {
    second.each(state, [&](std::int64_t i, float value) {
      ASSERT_EQ(value, want[static_cast<std::size_t>(i)])
          << spec.algorithm << " at stage " << stage << ", state " << state << ", value " << i;
    });
  };
  expect_bits(0, one.weights);
  for (std::size_t k = 0; k < one.codes.size(); ++k) {
    expect_bits(1 + k, one.values(k));
    expect_bits(1 + one.codes.size() + k, one.absmax[k]);
  }
  auto const name =
      dtype == Dtype::fp32 ? std::string("weight") : concat("weight_", name_of(dtype));
  Floats const want = floats_of(stored.at(name));
  Floats got;
  for (std::size_t i = 0; i < one.weights.size();
       i += static_cast<std::size_t>(oracle.at("stride").as_int()))
    got.push_back(one.weights[i]);
  optim::test::expect_close(got, want, rate, spec.algorithm);
}

TEST(Trajectories, OfStatesInCodesHaveTheBitsOfOneProcess) {
  bool const all = std::getenv("TESSERA_ALL_STAGES") != nullptr;
  auto const oracle = optim::test::coded_oracle();
  int number = 0;
  for (auto const& stored : oracle.at("cases").as_array()) {
    ++number;
    for (int stage = 0; stage <= 3; ++stage)
      for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
        if (all || dtype == Dtype::fp32 || stage == number % 4)
          expect_codes(oracle, stored, stage, dtype);
  }
}

/// Codes take a byte per element and state, and 8 bytes per chunk.
TEST(Trajectories, OfStatesInCodesTakeAFourthOfTheMemory) {
  std::int64_t const numel = std::int64_t{1} << 20;
  CodedTraining coded(optim::make_spec("AdamW8bit"), 1, Dtype::bf16, numel),
      plain(optim::make_spec("AdamW"), 1, Dtype::bf16, numel);
  auto const bytes = static_cast<double>(coded.engine().memory().optimizer_state);
  EXPECT_NEAR(bytes, 0.25 * static_cast<double>(plain.engine().memory().optimizer_state),
              0.03 * bytes);
  EXPECT_NEAR(
      static_cast<double>(coded.engine().memory().formula),
      static_cast<double>(plain.engine().memory().formula) -
          (8.0 - 2.0 - 8.0 / 256) * static_cast<double>(numel) / coded.engine().plan().ranks(),
      4096.0);
  EXPECT_EQ(coded.engine().plan().alignment(), 256);
}

TEST(Trajectories, OfEveryOptimizerAreThoseOfTheOracles) {
  bool const all = std::getenv("TESSERA_ALL_STAGES") != nullptr;
  std::set<std::string> seen{"AdamW8bit", "Lion8bit", "RMSprop8bit"};  // their own test
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
