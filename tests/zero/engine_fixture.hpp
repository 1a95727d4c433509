#pragma once
/// Runs the quadratic model through an engine, and the same training serially in double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "mpi_test.hpp"
#include "quadratic_model.hpp"
#include "recording_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/zero/engine/engine.hpp"

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
    initialize();
  }

  void initialize() {
    engine->initialize([](UnitIndex u, int p, std::int64_t first, std::int64_t numel, float* out) {
      for (std::int64_t i = 0; i < numel; ++i) out[i] = QuadraticModel::initial(u, p, first + i);
    });
  }

  int ranks() const { return recording->size(); }
  int rank() const { return recording->rank(); }

  /// One optimizer step over the samples of the global batch; rank r takes the r-th share of each
  /// micro-step.
  zero::StepResult step(double learning_rate, zero::StepValues const& values = {}) {
    int const micro_steps = engine->config().accumulation_steps,
              share = global_samples / micro_steps / ranks();
    engine->begin_step();
    for (int k = 0; k < micro_steps; ++k) {
      engine->begin_micro_step(k, micro_steps);
      model.train((k * ranks() + rank()) * share, share, engine->gradient_scale() / global_samples,
                  *engine, *compute);
    }
    return engine->finish_step(learning_rate, values);
  }

  /// Working weights in the order of the model, as a pass sees them. Collective.
  std::vector<float> weights() {
    std::vector<float> out;
    model.look(*engine, *compute,
               [&](UnitIndex, int, std::int64_t, float value) { out.push_back(value); });
    return out;
  }

  QuadraticModel model;
  std::unique_ptr<comm::RecordingCollectives> recording;
  std::unique_ptr<memory::Queue> compute;
  std::unique_ptr<zero::Engine> engine;
};

/// Whether all ranks have the bits of rank 0; the same answer on every rank. Collective.
inline bool same_on_all_ranks(comm::Collectives& comm, std::vector<float> const& values) {
  std::string const mine(reinterpret_cast<char const*>(values.data()), values.size() * 4);
  return comm::agree(comm, comm::broadcast_bytes(comm, mine, 0) == mine);
}

/// Elements of the units of QuadraticModel(blocks, true).
namespace tied_model {
constexpr int blocks = 3;
constexpr std::int64_t embedding = 1152, block = 640, head = 128;
constexpr std::int64_t parameters = embedding + blocks * block + head;
}  // namespace tied_model

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
  /// Values of a state that is not element-wise.
  std::vector<double> const& reduced(UnitIndex unit, int parameter, optim::Extent extent) const {
    auto const& means = means_.at({unit, parameter});
    return extent == optim::Extent::per_row ? means.rows : means.columns;
  }

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
    using Update = void (SerialTraining::*)(std::vector<double> const&, double);
    std::map<std::string, Update> const of_parameters{
        {"Lamb", &SerialTraining::update_lamb},
        {"Adafactor", &SerialTraining::update_adafactor},
        {"Muon", &SerialTraining::update_muon}};
    if (auto const found = of_parameters.find(config_.optimizer.algorithm);
        found != of_parameters.end()) {
      for (auto& g : gradients) g *= clip;
      (this->*found->second)(gradients, learning_rate);
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
    bool const corrects =
        config_.optimizer.algorithm == "Muon" || value(e, "bias_correction") != 0.0;
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

  /// Means of a parameter with at least two dimensions; one with a single column has row means
  /// only.
  struct Means {
    std::vector<double> rows, columns;
  };
  std::size_t columns_of(Element const& e) const {
    auto const& p =
        model_.units()[position(e.unit)].parameters[static_cast<std::size_t>(e.parameter)];
    return static_cast<std::size_t>(p.numel() / p.shape[0]);
  }

  using Matrix = std::vector<std::vector<double>>;
  static Matrix product(Matrix const& a, Matrix const& b) {
    Matrix out(a.size(), std::vector<double>(b[0].size()));
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t k = 0; k < b.size(); ++k)
        for (std::size_t j = 0; j < b[0].size(); ++j) out[i][j] += a[i][k] * b[k][j];
    return out;
  }
  static Matrix transposed(Matrix const& a) {
    Matrix out(a[0].size(), std::vector<double>(a.size()));
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t j = 0; j < a[0].size(); ++j) out[j][i] = a[i][j];
    return out;
  }
  static Matrix orthogonalized(Matrix x) {
    bool const is_tall = x.size() > x[0].size();
    double squares = 0.0;
    double const aspect = static_cast<double>(x.size()) / static_cast<double>(x[0].size());
    for (auto const& row : x)
      for (double const v : row) squares += v * v;
    for (auto& row : x)
      for (double& v : row) v /= std::sqrt(squares) + 1e-7;
    if (is_tall) x = transposed(x);
    for (int k = 0; k < 5; ++k) {
      Matrix b = product(x, transposed(x));
      Matrix const square = product(b, b);
      for (std::size_t i = 0; i < b.size(); ++i)
        for (std::size_t j = 0; j < b.size(); ++j)
          b[i][j] = -4.7750 * b[i][j] + 2.0315 * square[i][j] + (i == j ? 3.4445 : 0.0);
      x = product(b, x);
    }
    for (auto& row : x)
      for (double& v : row) v *= is_tall ? std::sqrt(aspect) : 1.0;
    return is_tall ? transposed(x) : x;
  }

  /// Matrices by Muon, the others by AdamW.
  void update_muon(std::vector<double> const& gradients, double lr) {
    std::map<std::pair<UnitIndex, int>, std::vector<std::size_t>> parameters;
    for (std::size_t k = 0; k < elements_.size(); ++k)
      parameters[{elements_[k].unit, elements_[k].parameter}].push_back(k);
    for (auto const& [key, elements] : parameters) {
      auto const& shape = model_.units()[position(key.first)]
                              .parameters[static_cast<std::size_t>(key.second)]
                              .shape;
      if (shape.size() < 2) {
        for (auto const k : elements) update_adam(elements_[k], gradients[k], lr);
        continue;
      }
      std::size_t const columns = columns_of(elements_[elements[0]]);
      Matrix direction(elements.size() / columns, std::vector<double>(columns));
      for (std::size_t i = 0; i < elements.size(); ++i) {
        Element& e = elements_[elements[i]];
        double const g = gradients[elements[i]], momentum = value(e, "momentum");
        e.states[0] += (1 - momentum) * (g - e.states[0]);
        direction[i / columns][i % columns] = g + momentum * (e.states[0] - g);
      }
      auto const update = orthogonalized(std::move(direction));
      for (std::size_t i = 0; i < elements.size(); ++i) {
        Element& e = elements_[elements[i]];
        e.weight -= lr * (value(e, "weight_decay") * e.weight + update[i / columns][i % columns]);
      }
    }
  }

  /// With scale_parameter and without a mean of the updates.
  void update_adafactor(std::vector<double> const& gradients, double lr) {
    struct Parameter {
      std::vector<std::size_t> elements;
      Means sums;
    };
    std::map<std::pair<UnitIndex, int>, Parameter> parameters;
    for (std::size_t k = 0; k < elements_.size(); ++k)
      parameters[{elements_[k].unit, elements_[k].parameter}].elements.push_back(k);
    double const beta2 = 1.0 - std::pow(t_, value(elements_[0], "decay_rate"));
    for (auto& [key, p] : parameters) {
      std::size_t const columns = columns_of(elements_[p.elements[0]]),
                        rows = p.elements.size() / columns;
      p.sums.rows.resize(rows), p.sums.columns.resize(columns);
      auto& means = means_[key];
      means.rows.resize(rows), means.columns.resize(columns);
      double weights = 0.0;
      for (std::size_t i = 0; i < p.elements.size(); ++i) {
        double const g = gradients[p.elements[i]], weight = elements_[p.elements[i]].weight;
        p.sums.rows[i / columns] += g * g;
        p.sums.columns[i % columns] += g * g;
        weights += weight * weight;
      }
      double mean = 0.0, update = 0.0;
      auto const advance = [&](std::vector<double>& state, std::vector<double> const& sums,
                               std::size_t count) {
        for (std::size_t i = 0; i < state.size(); ++i)
          state[i] = beta2 * state[i] + (1 - beta2) * sums[i] / static_cast<double>(count);
      };
      advance(means.rows, p.sums.rows, columns);
      if (columns > 1) advance(means.columns, p.sums.columns, rows);
      for (double const row : means.rows) mean += row / static_cast<double>(rows);
      std::vector<double> u;
      for (std::size_t i = 0; i < p.elements.size(); ++i) {
        double const row = means.rows[i / columns];
        double const square = columns > 1 ? row / mean * means.columns[i % columns] : row;
        u.push_back(gradients[p.elements[i]] / std::sqrt(square));
        update += u.back() * u.back();
      }
      auto const n = static_cast<double>(p.elements.size());
      double const clip = std::max(1.0, std::sqrt(update / n)),
                   rate = lr * std::max(1e-3, std::sqrt(weights / n));
      for (std::size_t i = 0; i < p.elements.size(); ++i) {
        Element& e = elements_[p.elements[i]];
        e.weight -= rate * value(e, "weight_decay") * e.weight + rate * u[i] / clip;
      }
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
  std::map<std::pair<UnitIndex, int>, Means> means_;
};

/// Largest |a - b| between this rank's part of the engine's state number @p which and the serial
/// training.
inline double state_difference(Training& training, std::size_t which,
                               SerialTraining const& serial) {
  auto const state = training.engine->state();
  auto const& plan = training.engine->plan();
  double worst = 0.0;
  if (auto const extent = state[which].extent; extent != optim::Extent::elementwise) {
    auto const reduced = plan.of_extent(extent);
    for (auto const& part : reduced.extents(Rank(training.rank())))
      for (std::int64_t i = 0; i < part.numel; ++i) {
        auto const at = reduced.unit(part.unit).shard_offset(part.partition_offset + i).value();
        double const want =
            serial.reduced(part.unit, part.parameter,
                           extent)[static_cast<std::size_t>(part.parameter_offset.value() + i)];
        double const mine = state[which].unit_shards[position(part.unit)][at];
        worst = std::isnan(mine) ? INFINITY : std::max(worst, std::abs(mine - want));
      }
    return worst;
  }
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
  c.partition = zero::partition_of(stage);
  c.dtype = dtype;
  c.communication_dtype = dtype;
  c.optimizer = optim::make_spec("AdamW", {{"weight_decay", 0.1}});
  return c;
}

}  // namespace tessera::test
