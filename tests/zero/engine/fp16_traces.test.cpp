/// Loss scale and skipped steps in fp16 against DeepSpeed on the same gradients: the runs of
/// tests/oracles/fp16_traces.py, whose loss is (w * c).sum() on each rank.
#include <gtest/gtest.h>

#include <algorithm>

#include "mpi_test.hpp"
#include "quadratic_model.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::test {
namespace {

zero::EngineConfig config_of(ConfigTree const& run, ConfigTree const& scaler) {
  std::string const variant = run.get_string("variant", "plain");
  zero::EngineConfig c;
  c.partition = zero::partition_of(static_cast<int>(run.at("stage").as_int()));
  c.dtype = c.communication_dtype = c.accumulation_dtype = Dtype::fp16;
  if (variant == "fp32") c.communication_dtype = Dtype::fp32;
  c.accumulation_steps = static_cast<int>(run.at("gas").as_int());
  c.optimizer = optim::make_spec("SGD");
  if (variant.ends_with("prescale"))
    c.reduction.division = zero::GradientDivision::before_reduction;
  if (variant.ends_with("predivide")) c.reduction.predivide_factor = 2.0;
  if (variant == "sum") c.reduction.average = zero::GradientAverage::sum;
  c.reduction.reduce_scatter = !variant.starts_with("all_reduce");
  double const fixed = scaler.get_double("loss_scale", 0.0);
  c.loss_scaler = {
      .dynamic = fixed == 0.0,
      .static_scale = fixed,
      .initial_scale_power = static_cast<int>(scaler.get_int("initial_scale_power", 0)),
      .window = scaler.get_int("loss_scale_window", 1),
      .hysteresis = static_cast<int>(scaler.get_int("hysteresis", 1)),
      .consecutive_hysteresis = scaler.get_bool("consecutive_hysteresis", false),
      .min_scale = scaler.get_double("min_loss_scale", 1.0)};
  if (zero::stage_of(c.partition) == 0) c.loss_scaler.hysteresis = 1;  // as engine_config()
  return c;
}

struct Trace {
  std::vector<double> scales;
  std::string skipped;
  bool ends = false;
};

class Fp16Run {
 public:
  explicit Fp16Run(zero::EngineConfig const& config)
      : comm_(comm::make_mpi(session(), std::chrono::seconds(60))),
        compute_(memory::make_inline_queue("compute")),
        engine_(
            zero::make_engine(config, {{"unit", {{"w", {8}, {}, true, {}}}}}, *comm_, *compute_)) {
    engine_->initialize([](UnitIndex, int, std::int64_t, std::int64_t numel, float* out) {
      std::fill_n(out, numel, 0.0f);
    });
  }

  Trace train(ConfigTree const& coefficients) {
    Trace out;
    for (std::size_t i = 0; i < coefficients.size() && !out.ends; ++i) {
      double const scale = engine_->loss_scale();
      try {
        bool const skipped = step(coefficients.as_array()[i]).skipped;
        out.scales.push_back(scale);
        out.skipped += skipped ? 'o' : '.';
      } catch (ConfigError const&) {
        out.ends = true;
      }
    }
    return out;
  }

 private:
  zero::StepResult step(ConfigTree const& micro_steps) {
    int const count = static_cast<int>(micro_steps.size());
    engine_->begin_step();
    for (int k = 0; k < count; ++k) {
      engine_->begin_micro_step(k, count);
      engine_->begin_pass(memory::Pass::training, {first_unit});
      (void)engine_->acquire(first_unit, *compute_);
      double const c = micro_steps.as_array()[static_cast<std::size_t>(k)]
                           .as_array()[static_cast<std::size_t>(comm_->rank())]
                           .as_double();
      auto const lease = engine_->gradient(first_unit, *compute_);
      for (std::int64_t i = 0; i < 8; ++i) {
        auto const g = static_cast<float>(c * engine_->gradient_scale() / (comm_->size() * count));
        store(lease[0], i, lease.accumulate() ? load(lease[0], i) + g : g);
      }
      engine_->gradient_complete(first_unit, *compute_);
    }
    return engine_->finish_step(1e-3);
  }

  std::unique_ptr<comm::Collectives> comm_;
  std::unique_ptr<memory::Queue> compute_;
  std::unique_ptr<zero::Engine> engine_;
};

TEST(Fp16Traces, AreThoseOfDeepSpeed) {
  auto const oracle =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/fp16_traces.json");
  int runs = 0, overflows = 0;
  for (auto const& run : oracle.at("cases").as_array()) {
    if (run.at("world").as_int() != session().info().world_size) continue;
    ++runs;
    auto const& scaler = oracle.at("scalers").at(run.at("scaler").as_string());
    auto const& scales = run.at("scales").as_array();
    auto const trace = Fp16Run(config_of(run, scaler)).train(run.at("coefficients"));
    std::string const what =
        concat("stage ", run.at("stage").as_int(), ", ", run.at("scaler").as_string(), ", ",
               run.get_string("variant", "plain"), ", gas ", run.at("gas").as_int());
    std::string const& skipped = run.at("skipped").as_string();
    // At its minimum scale DeepSpeed's stage 0 continues to skip; here every stage ends the run.
    std::size_t const seen = run.at("stage").as_int() == 0 ? trace.scales.size() : scales.size();
    ASSERT_GE(scales.size(), seen) << what;
    ASSERT_EQ(trace.skipped, skipped.substr(0, seen)) << what;
    for (std::size_t i = 0; i < seen; ++i)
      ASSERT_EQ(trace.scales[i], scales[i].as_double()) << what << ", step " << i;
    EXPECT_TRUE(trace.ends == run.at("ends").as_bool() || run.at("stage").as_int() == 0) << what;
    overflows += static_cast<int>(std::ranges::count(skipped, 'o'));
  }
  EXPECT_GT(runs, 20);
  EXPECT_GT(overflows, 3 * runs);
}

}  // namespace
}  // namespace tessera::test
