/// The delayed update of ZeRO-Offload: a step computes with weights that lack the update of the
/// step before. Oracle: the same algorithm serially, in double precision, from the gradients of the
/// model in one process.
#include "tessera/zero/engine/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "device_training.hpp"
#include "engine_settings.hpp"
#include "resident_params.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

using namespace test;
using memory::UnitIndex;

constexpr int micro_steps = SmallTraining::micro_steps;
constexpr double learning_rate = 1e-2, epsilon = 1e-4, decay = 0.1, max_norm = 1.0;

zero::EngineConfig config_of(int stage, Dtype dtype, std::int64_t delay_from) {
  auto config = small_training(stage, dtype).config;
  config.max_grad_norm = max_norm;
  config.optimizer = optim::make_spec("AdamW", {{"weight_decay", decay}, {"eps", epsilon}});
  test::states_of(config).optimizer_offload = {
      .tile_numel = 3000, .buffer_count = 2, .delay_from = delay_from};
  return config;
}

model::PassSettings settings_of(int step, int micro, double scale) {
  model::PassSettings out;
  out.dropout_seed = 5;
  out.step = static_cast<std::uint64_t>(step);
  out.gradient_scale = static_cast<float>(
      scale / static_cast<double>(SmallTraining::rows * (SmallTraining::length - 1) * micro_steps));
  out.recompute = micro == 1 ? Recompute::block : Recompute::none;
  return out;
}

void initialize(model::CausalLm const& model, zero::Engine& engine) {
  engine.initialize(
      [&](UnitIndex unit, int parameter, std::int64_t first, std::int64_t numel, float* out) {
        model::initialize_parameter(
            model.units()[position(unit)].parameters[static_cast<std::size_t>(parameter)], 3, first,
            numel, out);
      });
}

/// An engine on the device made of host memory.
struct DelayedRun {
  explicit DelayedRun(zero::EngineConfig const& config)
      : comm(
            (device(), comm::make_device(comm::make_mpi(session(), std::chrono::seconds(60)),
                                         std::chrono::seconds(60), comm::DeviceTransport::staged))),
        queue(memory::make_stream_queue("compute")),
        model(model::make_model(small_gpt2(), model::ModelOptions(config.dtype))),
        engine(zero::make_engine(config, model->units(), *comm, *queue)) {
    initialize(*model, *engine);
  }

  bool step(int number) {
    engine->begin_step();
    for (int micro = 0; micro < micro_steps; ++micro) {
      engine->begin_micro_step(micro, micro_steps);
      auto const tokens = small_tokens(number, micro, comm->rank());
      auto const loss = model->train(
          {tokens.data(), SmallTraining::rows, SmallTraining::length,
           (micro * comm->size() + comm->rank()) * SmallTraining::rows},
          settings_of(number, micro, engine->gradient_scale() / comm->size()), *engine, *queue);
      (void)loss.value();
    }
    return !engine->finish_step(learning_rate).skipped;
  }
  /// Master weights and states of this rank.
  std::vector<std::vector<float>> states() {
    std::vector<std::vector<float>> out;
    for (auto const& state : engine->state()) {
      out.emplace_back();
      for (auto u = memory::first_unit; u < engine->plan().end_unit(); ++u)
        out.back().insert(out.back().end(), state.unit_shards[position(u)],
                          state.unit_shards[position(u)] + engine->plan().unit(u).shard_numel);
    }
    return out;
  }
  void load(std::vector<std::vector<float>> const& saved, std::int64_t steps) {
    std::size_t k = 0;
    for (auto const& state : engine->state()) {
      auto const* from = saved[k++].data();
      for (auto u = memory::first_unit; u < engine->plan().end_unit(); ++u) {
        auto const numel = engine->plan().unit(u).shard_numel;
        std::copy_n(from, numel, state.unit_shards[position(u)]);
        from += numel;
      }
    }
    engine->load_state(steps, {});
  }

  std::unique_ptr<comm::Collectives> comm;
  std::unique_ptr<memory::Queue> queue;
  std::unique_ptr<model::CausalLm> model;
  std::unique_ptr<zero::Engine> engine;
};

/// All ranks' micro-steps one after the other in one process; AdamW with clipping in doubles.
class SerialDelayed {
 public:
  SerialDelayed(int ranks, std::int64_t delay_from)
      : ranks_(ranks),
        delay_from_(delay_from),
        queue_(memory::make_inline_queue("compute")),
        model_(model::make_model(small_gpt2(), model::ModelOptions(Dtype::fp32))),
        params_(model_->units(), Dtype::fp32, [](memory::ParameterSpec const& spec, float* out) {
          model::initialize_parameter(spec, 3, 0, spec.numel(), out);
        }) {
    params_.for_each([&](int unit, std::size_t p, memory::ParameterSpec const&) {
      auto const values = params_.weight_values(unit, p);
      masters[{unit, p}] = {values.begin(), values.end()};
      m_[{unit, p}] = v_[{unit, p}] = std::vector<double>(values.size());
    });
  }

  /// Gradients of the weights as they are; then either this step's update reaches the weights, or
  /// it waits until the next step has its gradients.
  void step(int number) {
    params_.begin_step();
    for (int micro = 0; micro < micro_steps; ++micro)
      for (int rank = 0; rank < ranks_; ++rank) {
        auto const tokens = small_tokens(number, micro, rank);
        auto const loss = model_->train({tokens.data(), SmallTraining::rows, SmallTraining::length,
                                         (micro * ranks_ + rank) * SmallTraining::rows},
                                        settings_of(number, micro, 1.0 / ranks_), params_, *queue_);
        (void)loss.value();
      }
    finish();
    update(++steps_);
    if (delay_from_ == 0 || steps_ < delay_from_) finish();
  }
  /// The weights have all updates.
  void finish() {
    for (auto const& [at, values] : masters)
      params_.set_weight(at.first, at.second, {values.begin(), values.end()});
  }

  std::map<std::pair<int, std::size_t>, std::vector<double>> masters;

 private:
  void update(int t) {
    double squares = 0.0;
    for (auto const& [at, unused] : masters)
      for (double const g : params_.gradient_values(at.first, at.second)) squares += g * g;
    double const factor = std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6));
    for (auto& [at, w] : masters) {
      auto const gradients = params_.gradient_values(at.first, at.second);
      auto &m = m_[at], &v = v_[at];
      double const decays = params_.spec(at.first).parameters[at.second].decays ? decay : 0.0;
      for (std::size_t i = 0; i < w.size(); ++i) {
        double const g = factor * gradients[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.999 * v[i] + 0.001 * g * g;
        double const rate = m[i] / (1 - std::pow(0.9, t)),
                     root = std::sqrt(v[i] / (1 - std::pow(0.999, t)));
        w[i] -= learning_rate * (rate / (root + epsilon) + decays * w[i]);
      }
    }
  }

  int ranks_;
  std::int64_t delay_from_;
  std::unique_ptr<memory::Queue> queue_;
  std::unique_ptr<model::CausalLm> model_;
  ResidentParams params_;
  std::map<std::pair<int, std::size_t>, std::vector<double>> m_, v_;
  int steps_ = 0;
};

/// |a - b| / |b| of this rank's master weights.
double difference(DelayedRun& run, SerialDelayed const& serial) {
  auto const state = run.engine->state();
  auto const& plan = run.engine->plan();
  double apart = 0.0, size = 0.0;
  for (auto const& part : plan.extents(Rank(run.comm->rank()))) {
    auto const at = plan.unit(part.unit).shard_offset(part.partition_offset).value();
    auto const& wanted =
        serial.masters.at({static_cast<int>(part.unit), static_cast<std::size_t>(part.parameter)});
    for (std::int64_t i = 0; i < part.numel; ++i) {
      double const ours = state[0].unit_shards[position(part.unit)][at + i],
                   theirs = wanted[static_cast<std::size_t>(part.parameter_offset.value() + i)];
      apart += (ours - theirs) * (ours - theirs);
      size += theirs * theirs;
    }
  }
  return std::sqrt(apart / size);
}

TEST(DelayedUpdate, IsTheSerialAlgorithm) {
  constexpr int steps = 6;
  for (std::int64_t const delay_from : {1, 3})
    for (int stage = 1; stage <= 3; ++stage) {
      SCOPED_TRACE(concat("stage ", stage, " from step ", delay_from));
      DelayedRun run(config_of(stage, Dtype::fp32, delay_from));
      SerialDelayed serial(run.comm->size(), delay_from), prompt(run.comm->size(), 0);
      device().jitter_us = stage == 2 ? 60 : 0;
      for (int k = 0; k < steps; ++k) {
        EXPECT_TRUE(run.step(k));
        serial.step(k);
        prompt.step(k);
      }
      device().jitter_us = 0;
      EXPECT_LT(difference(run, serial), 1e-5);
      EXPECT_GT(difference(run, prompt), 1e-3);
    }
}

/// The bits do not depend on stage, place of the weights and timing. Stage 1 adds micro-steps
/// before ranks, with and without the delay: it is the same as itself.
TEST(DelayedUpdate, IsTheSameInEveryStage) {
  for (auto const dtype : {Dtype::bf16, Dtype::fp16}) {
    std::vector<std::vector<float>> first, first_of_stage_1;
    for (int repeat = 0; repeat < 2; ++repeat) {
      device().jitter_us = 80 * static_cast<unsigned>(repeat);
      DelayedRun run(config_of(1, dtype, 2));
      for (int k = 0; k < 5; ++k) run.step(k);
      device().jitter_us = 0;
      auto const states = run.states();
      if (repeat == 0) first_of_stage_1 = states;
      EXPECT_TRUE(states == first_of_stage_1) << "stage 1 " << name_of(dtype);
    }
    for (int stage = 2; stage <= 3; ++stage)
      for (int place = 0; place < (stage == 3 ? 3 : 1); ++place) {
        SCOPED_TRACE(concat("stage ", stage, " weights ", place, " ", name_of(dtype)));
        auto config = config_of(stage, dtype, 2);
        config.reduction.reduce_scatter = true;
        if (place == 1) test::weights_of(config).weight_offload.emplace();
        if (place == 2)
          test::weights_of(config).weight_swap = {
              .transfers = to_the_drive(1, 1).transfers, .buffer_count = 2, .memory_numel = 0};
        DelayedRun run(config);
        device().jitter_us = 40 * static_cast<unsigned>(place);
        for (int k = 0; k < 5; ++k) run.step(k);
        device().jitter_us = 0;
        auto const states = run.states();
        if (first.empty()) first = states;
        EXPECT_TRUE(states == first);
      }
  }
}

/// A save completes the update: the run that continues and the run that resumes have the same bits.
TEST(DelayedUpdate, ResumesWithTheBitsOfTheRunThatSaved) {
  for (int stage = 1; stage <= 3; ++stage) {
    auto const config = config_of(stage, Dtype::bf16, 1);
    DelayedRun run(config);
    for (int k = 0; k < 3; ++k) run.step(k);
    auto const saved = run.states();
    DelayedRun resumed(config);
    resumed.load(saved, 3);
    DelayedRun unsaved(config);
    for (int k = 0; k < 3; ++k) unsaved.step(k);
    for (int k = 3; k < 6; ++k) {
      run.step(k);
      resumed.step(k);
      unsaved.step(k);
    }
    auto const states = run.states();
    EXPECT_EQ(resumed.states(), states) << "stage " << stage;
    EXPECT_NE(unsaved.states(), states) << "a step without delay follows a save";
  }
}

/// An evaluation sees the weights of a save at the same step.
TEST(DelayedUpdate, IsCompleteInEvaluations) {
  auto const config = config_of(2, Dtype::bf16, 1);
  DelayedRun run(config), saving(config);
  auto const tokens = small_tokens(1, 1, 1);
  auto const loss = [&](DelayedRun& of) {
    return of.model
        ->evaluate({tokens.data(), SmallTraining::rows, SmallTraining::length}, *of.engine,
                   *of.queue)
        .value();
  };
  for (int k = 0; k < 3; ++k) {
    run.step(k);
    saving.step(k);
    auto const states = saving.states();
    DelayedRun loaded(config);
    loaded.load(states, k + 1);
    EXPECT_EQ(loss(run), loss(loaded));
  }
  EXPECT_EQ(run.states(), saving.states());
}

TEST(DelayedUpdate, SkipsWhatOverflows) {
  for (int stage = 1; stage <= 3; ++stage) {
    auto config = config_of(stage, Dtype::fp16, 1);
    config.loss_scaler.dynamic = true;
    config.loss_scaler.initial_scale_power = 26;
    config.loss_scaler.hysteresis = 1;
    DelayedRun run(config);
    int skipped = 0;
    for (int k = 0; k < 12; ++k) skipped += !run.step(k);
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, 12);
    EXPECT_EQ(run.engine->optimizer_steps(), 12 - skipped);
    for (auto const& values : run.states())
      EXPECT_TRUE(
          std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }));
  }
}

TEST(DelayedUpdate, RefusesWhatItCannotDelay) {
  auto const refuses = [](zero::EngineConfig const& config, char const* part) {
    try {
      DelayedRun const run(config);
      ADD_FAILURE() << part;
    } catch (InternalError const& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  auto config = config_of(2, Dtype::bf16, 1);
  test::states_of(config).optimizer_offload->ratio = 0.5;
  refuses(config, "the delayed update of a part of the elements");
  config = config_of(2, Dtype::bf16, -1);
  refuses(config, "a delay from step -1");
  config = config_of(2, Dtype::bf16, 1);
  test::states_of(config).optimizer_swap = to_the_drive(5000, 3);
  refuses(config, "the delayed update of states on a drive");
  for (auto const* optimizer : {"Lamb", "Muon"}) {
    config = config_of(2, Dtype::bf16, 1);
    config.optimizer = optim::make_spec(optimizer);
    refuses(config, "whose update needs complete parameters");
  }
}

}  // namespace
}  // namespace tessera
