/// 15 steps of every optimizer in the engine against PyTorch, transformers and DeepSpeed: the
/// trajectories of tests/oracles/{optimizers,adafactor,muon}.py with parameters that are spread
/// over the ranks. Each case runs at one stage and in one dtype; with TESSERA_ALL_STAGES in all.
#include <cstdlib>
#include <set>

#include "../optim/quantized_case.hpp"
#include "engine_settings.hpp"
#include "mpi_test.hpp"
#include "quadratic_model.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/zero/engine/engine.hpp"

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

/// The stored steps of a case.
class OracleTraining {
 public:
  OracleTraining(ConfigTree const& oracle, ConfigTree const& stored, zero::EngineConfig config)
      : copies_(oracle, stored),
        comm_(comm::make_mpi(session(), std::chrono::seconds(60))),
        compute_(memory::make_inline_queue("compute")) {
    config.communication_dtype = config.dtype;
    std::vector<memory::UnitSpec> const units{{"unit", {{"w", copies_.shape, {}, true, {}}}}};
    engine_ = zero::make_engine(config, units, *comm_, *compute_);
    engine_->initialize([&](UnitIndex, int, std::int64_t first, std::int64_t numel, float* out) {
      for (std::int64_t i = 0; i < numel; ++i) out[i] = copies_.of(copies_.start, first + i);
    });
    for (auto const& row : oracle.at("gradients").as_array())
      step(floats_of(row), stored.at("lr").as_double());
  }

  /// Calls @p check(element, value, stored value) for the elements of a state that this rank saves.
  template <class Check>
  void each(std::size_t state, Floats const& want, Check const& check) {
    auto const view = engine_->state()[state];
    for (auto const& part : engine_->plan().extents(Rank(comm_->rank())))
      for (std::int64_t i = 0; i < part.numel; ++i) {
        std::int64_t const element = part.parameter_offset.value() + i;
        check(element, view.unit_shards[0][part.partition_offset.value() + i],
              copies_.of(want, element));
      }
  }
  void more(ConfigTree const& oracle) {
    step(floats_of(oracle.at("gradients").as_array()[0]), 1e-2);
  }
  void resume(OracleTraining& other) {
    auto const from = other.engine_->state(), to = engine_->state();
    for (std::size_t k = 0; k < from.size(); ++k)
      std::copy_n(from[k].unit_shards[0], engine_->plan().partition_numel(), to[k].unit_shards[0]);
    engine_->load_state(other.engine_->optimizer_steps(), other.engine_->scaler_state());
  }
  zero::Engine& engine() { return *engine_; }

 private:
  void step(Floats const& gradient, double rate) {
    Dtype const dtype = engine_->config().dtype;
    engine_->begin_step();
    engine_->begin_micro_step(0, 1);
    engine_->begin_pass(memory::Pass::training, {first_unit});
    {
      auto const weights = engine_->acquire(first_unit, *compute_);
      auto const gradients = engine_->gradient(first_unit, *compute_);
      for (std::int64_t i = 0; i < gradients[0].numel(); ++i)
        store(gradients[0], i,
              rounded(copies_.of(gradient, i), dtype) *
                  static_cast<float>(engine_->gradient_scale() / comm_->size()));
    }
    engine_->gradient_complete(first_unit, *compute_);
    EXPECT_FALSE(engine_->finish_step(rate).skipped);
  }

  Copies copies_;
  std::unique_ptr<comm::Collectives> comm_;
  std::unique_ptr<memory::Queue> compute_;
  std::unique_ptr<zero::Engine> engine_;
};

zero::EngineConfig config_of(ConfigTree const& stored, int stage, Dtype dtype) {
  zero::EngineConfig config;
  config.partition = zero::partition_of(stage);
  config.dtype = dtype;
  config.optimizer = optim::test::spec_of(stored);
  return config;
}

/// The master weights of this rank after the stored steps.
void expect_weights(ConfigTree const& oracle, ConfigTree const& stored, int stage, Dtype dtype) {
  OracleTraining training(oracle, stored, config_of(stored, stage, dtype));
  Floats const want = floats_of(
      stored.at(dtype == Dtype::fp32 ? std::string("weight") : concat("weight_", name_of(dtype))));
  training.each(0, want, [&](std::int64_t element, float got, float w) {
    ASSERT_NEAR(got, w, 2e-6 * std::abs(w) + 4e-7)
        << stored.at("algorithm").as_string() << " at stage " << stage << " in " << name_of(dtype)
        << ", element " << element;
  });
}

/// The distance of @p value to the next number of @p dtype.
double spacing_of(Dtype dtype, double value) {
  int exponent = 0;
  (void)std::frexp(value, &exponent);
  if (dtype == Dtype::bf16) return std::ldexp(1.0, std::max(exponent, -125) - 8);
  if (dtype == Dtype::fp16) return std::ldexp(1.0, std::max(exponent, -13) - 11);
  return 2e-6 * std::abs(value) + 4e-7;
}

/// DeepSpeed's kernels compute 1 - beta in fp32 instead of double. Means of 16-bit values are often
/// near the middle between two such numbers; then the results differ by one of them, and a value
/// that becomes smaller keeps the difference.
void expect_half_masters(ConfigTree const& oracle, ConfigTree const& stored, int stage) {
  Dtype const dtype = dtype_from_name(stored.at("dtype").as_string()),
              states = dtype_from_name(stored.at("state_dtype").as_string());
  auto config = config_of(stored, stage, dtype);
  states_of(config).master_dtype = dtype;
  config.loss_scaler.static_scale = 1024.0;  // shares of fp16 gradients stay normal numbers
  config.optimizer.set_state_dtype(states);
  OracleTraining training(oracle, stored, config);
  Floats start = floats_of(oracle.at("start"));
  for (auto& w : start) w = std::abs(w);
  std::int64_t count = 0, equal = 0;
  auto const expect = [&](std::size_t state, Floats const& want, Dtype of) {
    training.each(state, want, [&](std::int64_t element, float got, float w) {
      ++count;
      equal += got == w || of == Dtype::fp32;
      ASSERT_EQ(got, rounded(got, of)) << "more bits than " << name_of(of);
      float const largest = std::max(
          std::abs(w), state == 0 ? start[static_cast<std::size_t>(element) % start.size()] : 0.0f);
      ASSERT_NEAR(got, w, (of == Dtype::fp32 || state == 0 ? 1 : 4) * spacing_of(of, largest))
          << config.optimizer.algorithm << " at stage " << stage << " with " << name_of(dtype)
          << " master weights and " << name_of(states) << " states, state " << state << ", element "
          << element;
    });
  };
  expect(0, floats_of(stored.at("weight")), dtype);
  for (std::size_t k = 0; k < config.optimizer.states.size(); ++k)
    expect(1 + k, floats_of(stored.at("states").at(config.optimizer.states[k].name)), states);
  EXPECT_GE(equal, count * 9 / 10) << config.optimizer.algorithm;
}

/// A training whose parameter is in codes, with one that is too small for them.
class QuantizedTraining {
 public:
  QuantizedTraining(optim::OptimizerSpec const& spec, int stage, Dtype dtype, std::int64_t numel)
      : comm_(comm::make_mpi(session(), std::chrono::seconds(60))),
        compute_(memory::make_inline_queue("compute")) {
    zero::EngineConfig config;
    config.partition = zero::partition_of(stage);
    config.dtype = config.communication_dtype = dtype;
    config.optimizer = spec;
    std::vector<memory::UnitSpec> const units{
        {"unit", {{"small", {300}, {}, true, {}}, {"w", {numel}, {}, true, {}}}}};
    engine_ = zero::make_engine(config, units, *comm_, *compute_);
    engine_->initialize([](UnitIndex, int, std::int64_t first, std::int64_t count, float* out) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = optim::test::quantized_start(first + i);
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
                rounded(optim::test::quantized_gradient(i, t), dtype) *
                    static_cast<float>(engine_->gradient_scale() / comm_->size()));
    }
    engine_->gradient_complete(first_unit, *compute_);
    EXPECT_FALSE(engine_->finish_step(rate).skipped);
  }

  /// Takes the state of @p other, of another stage, through fp32 copies as a checkpoint has them.
  void resume(QuantizedTraining& other) {
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
  QuantizedTraining first(spec, stage, dtype, numel), second(spec, (stage + 1) % 4, dtype, numel);
  optim::test::QuantizedParameter one(spec, numel);
  for (std::int64_t t = 1; t <= steps; ++t) {
    if (t == steps / 2) second.resume(first);
    (t < steps / 2 ? first : second).step(t, rate);
    Floats gradients;
    for (std::int64_t i = 0; i < numel; ++i)
      gradients.push_back(rounded(optim::test::quantized_gradient(i, t), dtype));
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
  auto const oracle = optim::test::quantized_oracle();
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
  QuantizedTraining quantized(optim::make_spec("AdamW8bit"), 1, Dtype::bf16, numel),
      plain(optim::make_spec("AdamW"), 1, Dtype::bf16, numel);
  auto const bytes = static_cast<double>(quantized.engine().memory().optimizer_state);
  EXPECT_NEAR(bytes, 0.25 * static_cast<double>(plain.engine().memory().optimizer_state),
              0.03 * bytes);
  EXPECT_NEAR(
      static_cast<double>(quantized.engine().memory().formula),
      static_cast<double>(plain.engine().memory().formula) -
          (8.0 - 2.0 - 8.0 / 256) * static_cast<double>(numel) / quantized.engine().plan().ranks(),
      4096.0);
  EXPECT_EQ(quantized.engine().plan().alignment(), 256);
}

TEST(Trajectories, OfHalfMastersAreDeepSpeeds) {
  auto const oracle = ConfigTree::read(concat(TESSERA_TEST_DATA, "/oracles/half_masters.json"));
  for (auto const& stored : oracle.at("cases").as_array())
    for (int stage = 1; stage <= 3; ++stage) expect_half_masters(oracle, stored, stage);
}

/// 2 bytes of weights, which are their own master, 2 of gradients and 2 of each state.
TEST(Trajectories, OfHalfMastersTakeEightBytesPerParameter) {
  std::int64_t const numel = std::int64_t{1} << 16;
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  std::vector<memory::UnitSpec> const units{{"unit", {{"w", {numel}, {}, true, {}}}}};
  auto const ranks = static_cast<std::size_t>(comm->size());
  auto const n = static_cast<std::size_t>(numel);
  for (int stage = 1; stage <= 3; ++stage)
    for (Dtype const states : {Dtype::fp32, Dtype::bf16}) {
      zero::EngineConfig config;
      config.partition = zero::partition_of(stage);
      config.dtype = config.communication_dtype = states_of(config).master_dtype = Dtype::bf16;
      config.optimizer.set_state_dtype(states);
      auto const engine = zero::make_engine(config, units, *comm, *compute);
      auto const memory = engine->memory();
      EXPECT_EQ(memory.weights, 2 * n / (stage == 3 ? ranks : 1));
      EXPECT_EQ(memory.gradients, 2 * n / (stage >= 2 ? ranks : 1));
      EXPECT_EQ(memory.master_weights, 0u);
      EXPECT_EQ(memory.optimizer_state, 2 * size_of(states) * n / ranks);
      EXPECT_EQ(memory.formula, memory.weights + memory.gradients + memory.optimizer_state);
      states_of(config).master_dtype = Dtype::fp32;
      config.optimizer.set_state_dtype(Dtype::fp32);
      auto const usual = zero::make_engine(config, units, *comm, *compute)->memory();
      EXPECT_EQ(usual.formula - memory.formula,
                (4 + 2 * (sizeof(float) - size_of(states))) * n / ranks);
    }
}

/// Through the fp32 views, which a checkpoint has.
TEST(Trajectories, OfHalfMastersContinueAtAnotherStage) {
  auto const oracle = ConfigTree::read(concat(TESSERA_TEST_DATA, "/oracles/half_masters.json"));
  auto const& stored = oracle.at("cases").as_array()[1];
  auto const make = [&](int stage) {
    auto config = config_of(stored, stage, Dtype::bf16);
    states_of(config).master_dtype = Dtype::bf16;
    config.optimizer.set_state_dtype(Dtype::bf16);
    return OracleTraining(oracle, stored, config);
  };
  for (int stage = 1; stage <= 3; ++stage) {
    auto first = make(stage), second = make(stage % 3 + 1);
    EXPECT_TRUE(first.engine().state_is_snapshot());
    first.more(oracle);
    second.resume(first);
    for (int k = 0; k < 2; ++k) first.more(oracle), second.more(oracle);
    auto const want = first.engine().state(), got = second.engine().state();
    for (std::size_t k = 0; k < want.size(); ++k)
      for (std::int64_t i = 0; i < first.engine().plan().partition_numel(); ++i)
        ASSERT_EQ(got[k].unit_shards[0][i], want[k].unit_shards[0][i]) << "stage " << stage;
  }
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
    EXPECT_TRUE(seen.contains(info.algorithm) ||
                optim::is_compressing(optim::make_spec(info.algorithm)))
        << info.algorithm << " has no trajectory";
}

}  // namespace
}  // namespace tessera::test
