/// State views, restoring into any stage and rank count, and memory against the formulas.
#include "engine_fixture.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::test {
namespace {

using States = std::vector<std::vector<double>>;

/// Visits this rank's part of every state as visit(state, element in the model's order, value).
template <class Visit>
void visit_state(zero::Engine& engine, int rank, Visit visit) {
  auto const state = engine.state();
  auto const& plan = engine.plan();
  std::vector<std::vector<std::int64_t>> first;
  std::int64_t count = 0;
  for (auto const& unit : plan.units()) {
    first.emplace_back();
    for (auto const& p : unit.parameters) {
      first.back().push_back(count);
      count += p.numel;
    }
  }
  for (auto const& piece : plan.extents(Rank(rank))) {
    std::int64_t const at = plan.unit(piece.unit).shard_offset(piece.partition_offset).value();
    std::int64_t const element =
        first[position(piece.unit)][static_cast<std::size_t>(piece.parameter)] +
        piece.parameter_offset.value();
    for (std::size_t k = 0; k < state.size(); ++k)
      for (std::int64_t i = 0; i < piece.numel; ++i)
        visit(k, static_cast<std::size_t>(element + i),
              state[k].unit_shards[position(piece.unit)][at + i]);
  }
}

/// The complete state on every rank.
States collect(Training& training) {
  States out(3, std::vector<double>(
                    static_cast<std::size_t>(training.engine->plan().parameter_count()), 0.0));
  visit_state(*training.engine, training.rank(),
              [&](std::size_t k, std::size_t i, float& value) { out[k][i] = value; });
  for (auto& values : out)
    comm::all_reduce_values(*training.recording, values, comm::ReduceOp::sum);
  return out;
}

void restore(zero::Engine& engine, int rank, States const& states, std::int64_t steps,
             optim::LossScalerState const& scaler) {
  visit_state(engine, rank, [&](std::size_t k, std::size_t i, float& value) {
    value = static_cast<float>(states[k][i]);
  });
  engine.load_state(steps, scaler);
}

std::vector<float> seen_weights(Training& training) {
  std::vector<float> out;
  training.model.look(*training.engine, *training.compute,
                      [&](UnitIndex, int, std::int64_t, float value) { out.push_back(value); });
  return out;
}

TEST(EngineState, ContinuesInAnyStageAsIfNeverStopped) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::fp16})
    for (int from = 0; from <= 3; ++from)
      for (int to = 0; to <= 3; ++to) {
        auto config = config_of(from, dtype);
        config.loss_scaler = {
            .dynamic = dtype == Dtype::fp16, .initial_scale_power = 4, .window = 2};
        Training saved(config);
        for (int k = 0; k < 3; ++k) saved.step(1e-2);
        auto const state = collect(saved);
        config.partition = zero::partition_of(to);
        Training resumed(config);
        restore(*resumed.engine, resumed.rank(), state, saved.engine->optimizer_steps(),
                saved.engine->scaler_state());
        EXPECT_EQ(collect(resumed), state) << from << " to " << to;
        EXPECT_EQ(seen_weights(resumed), seen_weights(saved)) << from << " to " << to;
        EXPECT_EQ(resumed.engine->loss_scale(), saved.engine->loss_scale());
        auto const a = saved.step(1e-2), b = resumed.step(1e-2);
        EXPECT_EQ(a.grad_norm, b.grad_norm) << from << " to " << to;
        EXPECT_EQ(seen_weights(resumed), seen_weights(saved)) << from << " to " << to;
      }
}

/// From N ranks to one: the same state in another partition.
TEST(EngineState, MovesToAnotherRankCount) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training saved(config_of(stage));
    SerialTraining serial(saved.engine->config(), saved.model, saved.ranks());
    for (int k = 0; k < 3; ++k) {
      saved.step(1e-2);
      serial.step(1e-2);
    }
    auto const state = collect(saved);
    auto const alone = comm::make_loopback();
    auto const engine =
        zero::make_engine(config_of(stage), saved.model.units(), *alone, *saved.compute);
    restore(*engine, 0, state, 3, saved.engine->scaler_state());
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    saved.model.train(0, global_samples, 1.0 / global_samples, *engine, *saved.compute);
    EXPECT_FALSE(engine->finish_step(1e-2).skipped);
    serial.step(1e-2);
    std::size_t k = 0;
    saved.model.look(*engine, *saved.compute, [&](UnitIndex, int, std::int64_t, float value) {
      EXPECT_NEAR(value, serial.elements()[k++].weight, 2e-6);
    });
  }
}

/// No rank is left waiting when one cannot read its weights.
TEST(EngineState, RanksFailTogetherWhenOneHasNoWeights) {
  Training training(config_of(2));
  int const bad = training.ranks() - 1;
  auto const fill = [&](UnitIndex, int, std::int64_t, std::int64_t, float*) {
    if (training.rank() == bad) throw IoError("cannot read model.safetensors");
  };
  if (training.rank() == bad)
    EXPECT_THROW(training.engine->initialize(fill), IoError);
  else
    EXPECT_THROW(training.engine->initialize(fill), PeerLostError);
  EXPECT_FALSE(training.step(1e-2).skipped) << "the engine stays usable";
}

class Memory : public ::testing::TestWithParam<int> {};

/// A model without padding needs exactly what the formula says; what the memory tracker counted is
/// what the report says.
TEST_P(Memory, IsTheFormulas) {
  using memory::MemoryTracker;
  using memory::Purpose;
  QuadraticModel const model(3, true);
  double const p = 1152 + 3 * 640 + 128, n = session().info().world_size;
  struct Row {
    Dtype dtype;
    double bytes[4];
  };
  for (Row const& row :
       {Row{Dtype::bf16, {16 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n}},
        Row{Dtype::fp32, {16 * p, 8 * p + 8 * p / n, 4 * p + 12 * p / n, 16 * p / n}}}) {
    auto const now = [](Purpose purpose) { return MemoryTracker::of_process().current(purpose); };
    std::size_t const before[] = {now(Purpose::weights), now(Purpose::gradients),
                                  now(Purpose::master_weights), now(Purpose::optimizer_state),
                                  now(Purpose::communication)};
    Training training(config_of(GetParam(), row.dtype), model);
    auto const report = training.engine->memory();
    EXPECT_EQ(static_cast<double>(report.formula), row.bytes[GetParam()]);
    EXPECT_EQ(report.weights + report.gradients + report.master_weights + report.optimizer_state,
              report.formula);
    EXPECT_EQ(now(Purpose::weights) - before[0], report.weights);
    EXPECT_EQ(now(Purpose::gradients) - before[1], report.gradients);
    EXPECT_EQ(now(Purpose::master_weights) - before[2], report.master_weights);
    EXPECT_EQ(now(Purpose::optimizer_state) - before[3], report.optimizer_state);
    EXPECT_EQ(report.master_weights > 0, row.dtype != Dtype::fp32);
    training.step(1e-2);
    EXPECT_EQ(GetParam() >= 2 && n > 1, training.engine->memory().buffers > 0);
  }
}

TEST_P(Memory, IsWithinOnePercentOfTheFormulaForOddSizes) {
  std::vector<memory::UnitSpec> units;
  for (int u = 0; u < 3; ++u)
    units.push_back(
        {concat("unit.", u),
         {{concat("a", u), {101, 211 + u}, {}, true, {}}, {concat("b", u), {97}, {}, false, {}}}});
  auto const comm = make_comm();
  auto const compute = memory::make_inline_queue("compute");
  auto const report =
      zero::make_engine(config_of(GetParam(), Dtype::bf16), units, *comm, *compute)->memory();
  double const states = static_cast<double>(report.weights + report.gradients +
                                            report.master_weights + report.optimizer_state);
  EXPECT_NEAR(states / static_cast<double>(report.formula), 1.0, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Stages, Memory, ::testing::Values(0, 1, 2, 3));

TEST(EngineConfig, IsChecked) {
  auto const refuses = [](auto change, std::string const& name) {
    auto const comm = comm::make_loopback();
    auto const compute = memory::make_inline_queue("compute");
    auto config = config_of(0);
    try {
      change(config);
      (void)zero::make_engine(config, QuadraticModel(1).units(), *comm, *compute);
      ADD_FAILURE() << name << " was accepted";
    } catch (Error const& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  refuses([](auto& c) { c.partition = zero::partition_of(4); }, "ZeRO stage 4");
  refuses([](auto& c) { c.dtype = Dtype::int32; }, "training in int32");
  refuses([](auto& c) { c.communication_dtype = Dtype::fp64; }, "training in fp64");
  refuses([](auto& c) { c.accumulation_dtype = Dtype::bf16; }, "gradients accumulated as bf16");
  refuses([](auto& c) { c.accumulation_steps = 0; }, "0 micro-steps");
  refuses([](auto& c) { c.reduce_bucket_size = 0; }, "reductions of 0");
  refuses([](auto& c) { c.allgather_bucket_size = -1; }, "all-gathers of -1");
  auto const gathers = [](std::int64_t ahead, std::int64_t live) {
    return [=](auto& c) {
      zero::ShardedWeights weights;
      weights.prefetch_bucket_size = ahead;
      weights.max_live_parameters = live;
      c.partition = weights;
    };
  };
  refuses(gathers(-1, 0), "gathers of -1 elements ahead");
  refuses(gathers(0, -1), "-1 at a time");
  refuses([](auto& c) { c.max_grad_norm = -1.0; }, "the norm -1");
  refuses([](auto& c) { c.optimizer.hyperparameters[0].value = 1.0; }, "beta1");
  refuses([](auto& c) { c.optimizer.hyperparameters[1].value = -0.1; }, "beta2");
  refuses([](auto& c) { c.optimizer.algorithm = "Lion"; }, "Lion");
  refuses([](auto& c) { c.loss_scaler.static_scale = 0.0; }, "scaled by 0");
  refuses(
      [](auto& c) {
        c.optimizer = optim::make_spec("Lamb");
        c.optimizer.set_state_dtype(Dtype::bf16);
      },
      "16-bit states or master weights with optimizer Lamb");
}

}  // namespace
}  // namespace tessera::test
