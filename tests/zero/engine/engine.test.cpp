/// Stages 0 to 3 on 1, 2 and 4 ranks train as a serial optimizer in double precision does.
#include "engine_fixture.hpp"
#include "engine_settings.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::test {
namespace {

struct Scenario {
  std::string name;
  zero::EngineConfig config;
  /// Tolerance of master weights; one step changes them by the learning rate, 1e-2
  double tolerance = 2e-6;
  double norm_tolerance = 2e-7;  ///< relative
};
void PrintTo(Scenario const& s, std::ostream* out) { *out << s.name; }

class EngineTrains : public ::testing::TestWithParam<Scenario> {};

TEST_P(EngineTrains, AsTheSerialOptimizerDoes) {
  auto const& scenario = GetParam();
  Training training(scenario.config);
  SerialTraining serial(scenario.config, training.model, training.ranks());
  for (int k = 1; k <= 5; ++k) {
    double const rate = 1e-2 / k;
    double const norm = serial.step(rate);
    auto const result = training.step(rate);
    EXPECT_FALSE(result.skipped);
    EXPECT_NEAR(result.grad_norm, norm, scenario.norm_tolerance * norm) << "step " << k;
    EXPECT_EQ(training.engine->optimizer_steps(), k);
  }
  bool const exact = scenario.config.dtype == Dtype::fp32;
  auto const names = scenario.config.optimizer.state_names();
  for (std::size_t k = 0; k < names.size(); ++k)
    EXPECT_LT(state_difference(training, k, serial), scenario.tolerance) << names[k];
  // a 16-bit weight may round to the neighbor: one unit of the last of 8 (bf16) or 11 (fp16) bits
  // of a number below 2
  EXPECT_LE(weight_difference(training, serial),
            exact ? scenario.tolerance
                  : std::ldexp(1.0, scenario.config.dtype == Dtype::bf16 ? -7 : -10));
}

template <class Change>
void add(std::vector<Scenario>& out, std::string const& name, Dtype dtype, Change change,
         double tolerance, double norm_tolerance) {
  for (int stage = 0; stage <= 3; ++stage) {
    Scenario s{concat(name, "_stage_", stage), config_of(stage, dtype), tolerance, norm_tolerance};
    change(s.config);
    out.push_back(s);
  }
}

std::vector<Scenario> fp32_scenarios() {
  std::vector<Scenario> out;
  auto const fp32 = [&](std::string const& name, auto change) {
    add(out, name, Dtype::fp32, change, 2e-6, 2e-7);
  };
  fp32("plain", [](auto&) {});
  fp32("clipped", [](auto& c) { c.max_grad_norm = 0.5; });
  fp32("accumulated", [](auto& c) { c.accumulation_steps = 2; });
  fp32("accumulated_reduced_once", [](auto& c) {
    c.accumulation_steps = 2;
    set_reduce_once(c);
  });
  fp32("no_overlap", [](auto& c) { c.overlap_comm = false; });
  fp32("small_buckets", [](auto& c) { c.reduce_bucket_size = c.allgather_bucket_size = 100; });
  fp32("no_prefetch", [](auto& c) {
    set_prefetch(c, 0);
    c.accumulation_steps = 2;
  });
  fp32("little_live", [](auto& c) {
    if (auto* w = zero::edit<zero::ShardedWeights>(c)) w->max_live_parameters = 300;
  });
  fp32("all_decay", [](auto& c) { c.optimizer.groups = optim::one_group(); });
  fp32("l2", [](auto& c) { c.optimizer.algorithm = "Adam"; });
  fp32("uncorrected", [](auto& c) {
    c.optimizer = optim::make_spec("AdamW", {{"weight_decay", 0.1}, {"bias_correction", 0.0}});
  });
  auto const sgd = [&](std::string const& name, std::vector<optim::Hyperparameter> values) {
    values.push_back({"weight_decay", 0.1});
    fp32("sgd_" + name, [&](auto& c) { c.optimizer = optim::make_spec("SGD", values); });
  };
  sgd("plain", {});
  sgd("momentum", {{"momentum", 0.9}});
  sgd("dampened", {{"momentum", 0.9}, {"dampening", 0.5}});
  sgd("nesterov", {{"momentum", 0.9}, {"nesterov", 1.0}});
  fp32("lamb", [](auto& c) { c.optimizer = optim::make_spec("Lamb", {{"weight_decay", 0.1}}); });
  fp32("unchecked", [](auto& c) { c.skip_on_nonfinite = false; });
  fp32("unchecked_lamb", [](auto& c) {
    c.skip_on_nonfinite = false;
    c.optimizer = optim::make_spec("Lamb", {{"weight_decay", 0.1}});
  });
  fp32("adafactor", [](auto& c) {
    c.optimizer = optim::make_spec("Adafactor", {{"weight_decay", 0.1}, {"scale_parameter", 1.0}});
  });
  fp32("muon", [](auto& c) { c.optimizer = optim::make_spec("Muon", {{"weight_decay", 0.1}}); });
  fp32("lion", [](auto& c) { c.optimizer = optim::make_spec("Lion", {{"weight_decay", 0.1}}); });
  fp32("rmsprop", [](auto& c) {
    c.optimizer = optim::make_spec("RMSprop", {{"momentum", 0.5}, {"centered", 1.0}, {"eps", 0.1}});
  });
  add(
      out, "bf16_wire", Dtype::fp32, [](auto& c) { c.communication_dtype = Dtype::bf16; }, 2e-2,
      1e-2);
  add(
      out, "fp16_wire_accumulated", Dtype::fp32,
      [](auto& c) {
        c.communication_dtype = Dtype::fp16;
        c.accumulation_steps = 2;
      },
      1e-2, 1e-3);
  return out;
}

std::vector<Scenario> half_scenarios() {
  std::vector<Scenario> out;
  for (Dtype const dtype : {Dtype::bf16, Dtype::fp16}) {
    auto const half = [&](std::string const& name, auto change) {
      add(out, concat(name_of(dtype), "_", name), dtype, change, 1e-4, 1e-3);
    };
    half("plain", [](auto&) {});
    half("clipped", [](auto& c) { c.max_grad_norm = 0.5; });
    half("accumulated_fp32_wire", [](auto& c) {
      c.accumulation_steps = 2;
      c.communication_dtype = Dtype::fp32;
    });
    half("lamb", [](auto& c) { c.optimizer = optim::make_spec("Lamb"); });
    half("sgd", [](auto& c) { c.optimizer = optim::make_spec("SGD", {{"momentum", 0.9}}); });
    half("scaled", [](auto& c) { c.loss_scaler.static_scale = 128.0; });
    half("scaled_unchecked", [](auto& c) {
      c.loss_scaler.static_scale = 128.0;
      c.skip_on_nonfinite = false;
    });
  }
  return out;
}

auto const scenario_name = [](auto const& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Fp32, EngineTrains, ::testing::ValuesIn(fp32_scenarios()), scenario_name);
INSTANTIATE_TEST_SUITE_P(Half, EngineTrains, ::testing::ValuesIn(half_scenarios()), scenario_name);

/// The bits of a step depend neither on the stage nor on how reductions are cut and overlapped.
TEST(Engine, StagesAgreeBitByBit) {
  auto const train = [](zero::EngineConfig const& config) {
    Training training(config);
    for (int k = 0; k < 4; ++k) training.step(1e-2);
    return training.weights();
  };
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16}) {
    auto const expected = train(config_of(0, dtype));
    for (auto const& info : optim::optimizers()) {
      std::string const algorithm = info.algorithm;
      if (algorithm == "AdamW") continue;
      auto config = config_of(0, dtype);
      config.optimizer = optim::make_spec(algorithm);
      auto const other = train(config);
      EXPECT_NE(other, expected);
      if (optim::is_compressing(config.optimizer)) continue;  // not with ZeRO
      for (int stage = 1; stage <= 3; ++stage) {
        config.partition = zero::partition_of(stage);
        EXPECT_EQ(train(config), other) << algorithm << " at stage " << stage;
      }
    }
    for (int stage = 1; stage <= 3; ++stage)
      for (std::int64_t bucket : {64, 1000, 1'000'000}) {
        auto config = config_of(stage, dtype);
        config.reduce_bucket_size = config.allgather_bucket_size = bucket;
        set_prefetch(config, bucket);
        EXPECT_EQ(train(config), expected)
            << "stage " << stage << ", bucket " << bucket << ", " << name_of(dtype);
      }
  }
}

/// Sums over micro-steps first, then over ranks: the order of stage 1.
TEST(Engine, ReducedOncePerStepHasTheBitsOfStage1) {
  struct Trained {
    std::vector<float> weights;
    std::vector<double> norms;
    zero::MemoryReport memory;
  };
  auto const train = [](int stage, Dtype dtype, bool reduce_once, int micro_steps = 2) {
    auto config = config_of(stage, dtype);
    config.accumulation_steps = micro_steps;
    config.max_grad_norm = 0.5;
    if (reduce_once) set_reduce_once(config);
    Training training(config);
    Trained out;
    for (int k = 0; k < 4; ++k) out.norms.push_back(training.step(1e-2).grad_norm);
    out.weights = training.weights();
    out.memory = training.engine->memory();
    return out;
  };
  bool const several = session().info().world_size > 1;
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    auto const one = train(1, dtype, false);
    for (int stage = 2; stage <= 3; ++stage) {
      auto const once = train(stage, dtype, true), each = train(stage, dtype, false);
      EXPECT_EQ(once.weights, one.weights) << name_of(dtype) << " stage " << stage;
      EXPECT_EQ(once.norms, one.norms);
      for (std::size_t k = 0; dtype == Dtype::fp32 && k < once.norms.size(); ++k)
        EXPECT_NEAR(once.norms[k], each.norms[k], 1e-5 * each.norms[k]) << "step " << k;
      EXPECT_EQ(once.memory.gradients, one.memory.gradients) << "complete, fp32";
      if (several) {
        EXPECT_GT(once.memory.gradients, each.memory.gradients);
      }
      EXPECT_EQ(once.memory.weights, each.memory.weights);
      auto const plain = train(stage, dtype, false, 1), same = train(stage, dtype, true, 1);
      EXPECT_EQ(same.memory.gradients, plain.memory.gradients) << "one micro-step has no cost";
    }
  }
}

TEST(EngineBetas, AreThoseOfTheLastCall) {
  auto const spec = [](double beta1, double beta2) {
    auto config = config_of(2, Dtype::fp32);
    config.optimizer = optim::make_spec("AdamW", {{"beta1", beta1}, {"beta2", beta2}});
    return config;
  };
  Training scheduled(spec(0.9, 0.999)), constant(spec(0.5, 0.99));
  for (int step = 0; step < 3; ++step) {
    scheduled.engine->set_betas(0.5, 0.99);
    EXPECT_EQ(scheduled.step(1e-2).grad_norm, constant.step(1e-2).grad_norm);
  }
  EXPECT_EQ(scheduled.engine->config().optimizer.value("beta1"), 0.9) << "as configured";
}

}  // namespace
}  // namespace tessera::test
