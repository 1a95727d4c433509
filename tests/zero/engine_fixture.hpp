#pragma once
/// Runs the quadratic model through an engine, and the same training serially in double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "mpi_test.hpp"
#include "quadratic_model.hpp"
#include "tessera/comm/host_collectives.hpp"
#include "tessera/comm/recording.hpp"
#include "tessera/zero/engine.hpp"

namespace tessera::test {

constexpr int global_samples = 8;

inline std::unique_ptr<comm::Collectives> make_comm() {
  return comm::make_mpi(session(), std::chrono::seconds(60));
}

/// An engine with the model and the queues it needs; initialized from QuadraticModel::initial.
struct Training {
  explicit Training(zero::EngineConfig const& config, QuadraticModel m = QuadraticModel(3),
                    zero::PlaceState const& place = {})
      : model(std::move(m)),
        recording(comm::make_recording(make_comm())),
        compute(memory::make_inline_queue("compute")),
        engine(zero::make_engine(config, model.units(), *recording, *compute, place)) {
    engine->initialize([](UnitIndex u, int p, std::int64_t first, std::int64_t numel, float* out) {
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

/// The optimizer in double precision on all elements, with gradients as the engine's ranks and
/// micro-steps round them.
class SerialTraining {
 public:
  SerialTraining(zero::EngineConfig const& config, QuadraticModel const& model, int ranks)
      : config_(config), model_(model), ranks_(ranks) {
    for (auto u = first_unit; position(u) < model.units().size(); ++u) {
      auto const& parameters = model.units()[position(u)].parameters;
      for (int p = 0; p < static_cast<int>(parameters.size()); ++p)
        for (std::int64_t i = 0; i < parameters[static_cast<std::size_t>(p)].numel(); ++i)
          elements_.push_back({u, p, i, parameters[static_cast<std::size_t>(p)].decays,
                               QuadraticModel::initial(u, p, i),
                               std::vector<double>(config.optimizer.states.size())});
    }
  }

  struct Element {
    UnitIndex unit;
    int parameter;
    std::int64_t index;
    bool decays;
    double weight;
    std::vector<double> states;  ///< parallel to OptimizerSpec::states
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
    if (config_.optimizer.algorithm == "Lamb") {
      for (auto& g : gradients) g *= clip;
      update_lamb(gradients, learning_rate);
      return norm;
    }
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
    bool const tied = e.unit == first_unit && e.parameter == 0;
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
    if (config_.optimizer.algorithm == "SGD")
      update_sgd(e, g, lr);
    else if (config_.optimizer.algorithm == "Lion")
      update_lion(e, g, lr);
    else if (config_.optimizer.algorithm == "RMSprop")
      update_rmsprop(e, g, lr);
    else
      update_adam(e, g, lr);
  }

  double value(Element const& e, char const* name) const {
    return config_.optimizer.value(
        name, config_.optimizer.group_of(e.decays ? optim::WeightDecay::applies
                                                  : optim::WeightDecay::skipped));
  }

  void update_adam(Element& e, double g, double lr) const {
    double const decay = value(e, "weight_decay"), beta1 = value(e, "beta1"),
                 beta2 = value(e, "beta2");
    if (config_.optimizer.algorithm == "Adam")
      g += decay * e.weight;
    else
      e.weight -= lr * decay * e.weight;
    double &m = e.states[0], &v = e.states[1];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    bool const corrects = value(e, "bias_correction") != 0.0;
    double const c1 = corrects ? 1 - std::pow(beta1, t_) : 1.0;
    double const c2 = corrects ? 1 - std::pow(beta2, t_) : 1.0;
    e.weight -= lr * (m / c1) / (std::sqrt(v / c2) + value(e, "eps"));
  }

  void update_sgd(Element& e, double g, double lr) const {
    double const momentum = value(e, "momentum");
    g += value(e, "weight_decay") * e.weight;
    if (momentum != 0.0) {
      double& b = e.states[0];
      b = t_ == 1 ? g : momentum * b + (1 - value(e, "dampening")) * g;
      g = value(e, "nesterov") != 0.0 ? g + momentum * b : b;
    }
    e.weight -= lr * g;
  }

  /// With the norms of each parameter.
  void update_lamb(std::vector<double> const& gradients, double lr) {
    struct Norms {
      double weights = 0.0, update = 0.0;
    };
    std::map<std::pair<UnitIndex, int>, Norms> norms;
    std::vector<double> updates;
    for (std::size_t k = 0; k < elements_.size(); ++k) {
      Element& e = elements_[k];
      double const g = gradients[k], beta1 = value(e, "beta1"), beta2 = value(e, "beta2");
      double &m = e.states[0], &v = e.states[1];
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      updates.push_back(m / (std::sqrt(v) + value(e, "eps")) + value(e, "weight_decay") * e.weight);
      auto& norm = norms[{e.unit, e.parameter}];
      norm.weights += e.weight * e.weight;
      norm.update += updates.back() * updates.back();
    }
    for (std::size_t k = 0; k < elements_.size(); ++k) {
      Element& e = elements_[k];
      auto const& norm = norms[{e.unit, e.parameter}];
      double const ratio = std::clamp(std::sqrt(norm.weights / norm.update), value(e, "min_coeff"),
                                      value(e, "max_coeff"));
      double const factor =
          std::sqrt(1 - std::pow(value(e, "beta2"), t_)) / (1 - std::pow(value(e, "beta1"), t_));
      e.weight -= lr * factor * ratio * updates[k];
    }
  }

  void update_lion(Element& e, double g, double lr) const {
    double& m = e.states[0];
    double const direction = value(e, "beta1") * m + (1 - value(e, "beta1")) * g;
    e.weight -= lr * value(e, "weight_decay") * e.weight;
    e.weight -= direction > 0 ? lr : -lr;
    m = value(e, "beta2") * m + (1 - value(e, "beta2")) * g;
  }

  /// The centered form with momentum: three states.
  void update_rmsprop(Element& e, double g, double lr) const {
    double const alpha = value(e, "alpha");
    double &s = e.states[0], &b = e.states[1], &a = e.states[2];
    g += value(e, "weight_decay") * e.weight;
    s = alpha * s + (1 - alpha) * g * g;
    a = alpha * a + (1 - alpha) * g;
    b = value(e, "momentum") * b + g / (std::sqrt(s - a * a) + value(e, "eps"));
    e.weight -= lr * b;
  }

  zero::EngineConfig config_;
  QuadraticModel model_;
  int ranks_;
  int t_ = 0;
  std::vector<Element> elements_;
};

/// Largest |a - b| between this rank's part of the engine's state number @p which and the serial
/// training.
inline double state_difference(Training& training, std::size_t which,
                               SerialTraining const& serial) {
  auto const state = training.engine->state();
  auto const& plan = training.engine->plan();
  double worst = 0.0;
  for (auto const& e : serial.elements()) {
    auto const& unit = plan.unit(e.unit);
    auto const& slot = unit.parameters[static_cast<std::size_t>(e.parameter)];
    std::int64_t const at = unit.shard_offset(Rank(training.rank()), slot.offset + e.index).value();
    if (at < 0 || at >= unit.shard_numel) continue;
    double const mine = state[which].unit_shards[position(e.unit)][at];
    double const want = which == 0 ? e.weight : e.states[which - 1];
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
      *training.engine, *training.compute, [&](UnitIndex, int, std::int64_t, float value) {
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
  c.optimizer = optim::make_spec("AdamW", {{"weight_decay", 0.1}});
  return c;
}

}  // namespace tessera::test
