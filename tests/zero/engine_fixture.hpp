#pragma once
/// Runs the quadratic model through an engine, and the same training serially in double precision.

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "mpi_test.hpp"
#include "quadratic_model.hpp"
#include "tessera/comm/recording.hpp"
#include "tessera/zero/engine.hpp"

namespace tessera::test {

constexpr int global_samples = 8;

inline std::unique_ptr<comm::Collectives> make_comm() {
  return comm::make_mpi(session(), std::chrono::seconds(60));
}

/// An engine with the model and the queues it needs; initialized from QuadraticModel::initial.
struct Training {
  explicit Training(zero::EngineConfig const& config, QuadraticModel m = QuadraticModel(3))
      : model(std::move(m)),
        recording(comm::make_recording(make_comm())),
        compute(memory::make_inline_queue("compute")),
        engine(zero::make_engine(config, model.units(), *recording, *compute)) {
    engine->initialize([](int u, int p, std::int64_t first, std::int64_t numel, float* out) {
      for (std::int64_t i = 0; i < numel; ++i) out[i] = QuadraticModel::initial(u, p, first + i);
    });
  }

  int ranks() const { return recording->size(); }
  int rank() const { return recording->rank(); }

  /// One optimizer step over the samples of the global batch; rank r takes the r-th share of each
  /// micro-step.
  zero::StepResult step(double learning_rate) {
    int const micro_steps = engine->config().accumulation_steps,
              share = global_samples / micro_steps / ranks();
    engine->begin_step();
    for (int k = 0; k < micro_steps; ++k) {
      engine->begin_micro_step(k, micro_steps);
      model.train((k * ranks() + rank()) * share, share, engine->loss_scale() / global_samples,
                  *engine, *compute);
    }
    return engine->finish_step(learning_rate);
  }

  QuadraticModel model;
  std::unique_ptr<comm::RecordingCollectives> recording;
  std::unique_ptr<memory::Queue> compute;
  std::unique_ptr<zero::Engine> engine;
};

/// AdamW in double precision on all elements, with gradients as the engine's ranks and micro-steps
/// round them.
class SerialTraining {
 public:
  SerialTraining(zero::EngineConfig const& config, QuadraticModel const& model, int ranks)
      : config_(config), model_(model), ranks_(ranks) {
    for (int u = 0; u < static_cast<int>(model.units().size()); ++u) {
      auto const& parameters = model.units()[static_cast<std::size_t>(u)].parameters;
      for (int p = 0; p < static_cast<int>(parameters.size()); ++p)
        for (std::int64_t i = 0; i < parameters[static_cast<std::size_t>(p)].numel(); ++i)
          elements_.push_back({u, p, i, parameters[static_cast<std::size_t>(p)].decays,
                               QuadraticModel::initial(u, p, i), 0.0, 0.0});
    }
  }

  struct Element {
    int unit, parameter;
    std::int64_t index;
    bool decays;
    double weight, m, v;
  };
  std::vector<Element> const& elements() const { return elements_; }
  int steps() const { return t_; }

  /// Returns the norm before clipping.
  double step(double learning_rate) {
    std::vector<double> gradients;
    double squares = 0.0;
    for (auto const& e : elements_) {
      gradients.push_back(gradient(e));
      squares += gradients.back() * gradients.back();
    }
    double const norm = std::sqrt(squares);
    double const clip =
        config_.max_grad_norm > 0 ? std::min(1.0, config_.max_grad_norm / (norm + 1e-6)) : 1.0;
    ++t_;
    for (std::size_t k = 0; k < elements_.size(); ++k)
      update(elements_[k], clip * gradients[k], learning_rate);
    return norm;
  }

 private:
  double gradient(Element const& e) const {
    auto const weight = rounded(static_cast<float>(e.weight), config_.dtype);
    int const micro_steps = config_.accumulation_steps,
              share = global_samples / micro_steps / ranks_;
    bool const exact = config_.dtype == Dtype::fp32;
    bool const tied = e.unit == 0 && e.parameter == 0;
    double sum = 0.0;
    for (int part = 0; part < micro_steps * ranks_; ++part) {
      double const g = QuadraticModel::gradient(e.unit, e.parameter, e.index, part * share, share,
                                                exact ? e.weight : weight) /
                       global_samples;
      auto const half = static_cast<float>(0.5 * g);
      if (exact)
        sum += g;
      else
        sum += tied ? rounded(rounded(half, config_.dtype) + half, config_.dtype)
                    : rounded(static_cast<float>(g), config_.dtype);
    }
    bool const kept_rounded =
        config_.accumulation_steps == 1 && config_.communication_dtype == config_.dtype;
    return kept_rounded && !exact ? rounded(static_cast<float>(sum), config_.dtype) : sum;
  }

  void update(Element& e, double g, double lr) const {
    double const decay = e.decays || !config_.decay_groups ? config_.weight_decay : 0.0;
    if (config_.adam_l2)
      g += decay * e.weight;
    else
      e.weight -= lr * decay * e.weight;
    e.m = config_.beta1 * e.m + (1 - config_.beta1) * g;
    e.v = config_.beta2 * e.v + (1 - config_.beta2) * g * g;
    double const c1 = config_.bias_correction ? 1 - std::pow(config_.beta1, t_) : 1.0;
    double const c2 = config_.bias_correction ? 1 - std::pow(config_.beta2, t_) : 1.0;
    e.weight -= lr * (e.m / c1) / (std::sqrt(e.v / c2) + config_.epsilon);
  }

  zero::EngineConfig config_;
  QuadraticModel model_;
  int ranks_;
  int t_ = 0;
  std::vector<Element> elements_;
};

/// Largest |a - b| between this rank's part of the engine's state "fp32", "exp_avg" or "exp_avg_sq"
/// and the serial training.
inline double state_difference(Training& training, std::size_t which,
                               SerialTraining const& serial) {
  auto const state = training.engine->state();
  auto const& plan = training.engine->plan();
  double worst = 0.0;
  for (auto const& e : serial.elements()) {
    auto const& unit = plan.unit(e.unit);
    std::int64_t const at = unit.parameters[static_cast<std::size_t>(e.parameter)].offset +
                            e.index - training.rank() * unit.shard_numel;
    if (at < 0 || at >= unit.shard_numel) continue;
    double const mine = state[which].unit_shards[static_cast<std::size_t>(e.unit)][at];
    double const want = which == 0 ? e.weight : which == 1 ? e.m : e.v;
    double const difference = std::abs(mine - want);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

/// Largest |a - b| between the weights that an evaluation sees on this rank and the serial
/// training's, rounded to the dtype.
inline double weight_difference(Training& training, SerialTraining const& serial) {
  std::size_t k = 0;
  double worst = 0.0;
  training.model.look(
      *training.engine, *training.compute, [&](int, int, std::int64_t, float value) {
        float const want = rounded(static_cast<float>(serial.elements()[k++].weight),
                                   training.engine->config().dtype);
        double const difference = std::abs(static_cast<double>(value) - want);
        worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
      });
  return worst;
}

inline zero::EngineConfig config_of(int stage, Dtype dtype = Dtype::fp32) {
  zero::EngineConfig c;
  c.stage = stage;
  c.dtype = dtype;
  c.communication_dtype = dtype;
  c.weight_decay = 0.1;
  return c;
}

}  // namespace tessera::test
