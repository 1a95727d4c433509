#pragma once
/// The optimizers that exchange signs, serially in double precision: all ranks in one place. The
/// phases follow DeepSpeed's counters, step by step.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/zero/engine/engine.hpp"

namespace tessera::test {

class OneBitReference {
 public:
  using Doubles = std::vector<double>;
  /// Initial weight, and the gradient of a rank's own mean loss at weight w.
  using Initial = std::function<double(zero::UnitIndex, int p, std::int64_t i)>;
  using Gradient =
      std::function<double(int rank, zero::UnitIndex, int p, std::int64_t i, double w)>;

  OneBitReference(zero::EngineConfig const& config, zero::PartitionPlan const& plan,
                  Initial const& initial, Gradient gradient)
      : spec_(config.optimizer), plan_(plan), gradient_(std::move(gradient)) {
    std::size_t shared = 0;
    for (auto u = zero::first_unit; u < plan.end_unit(); ++u) {
      auto const& unit = plan.unit(u);
      for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
        auto const& slot = unit.parameters[p];
        scales_.push_back(is_lamb() ? shared : places_.size());
        places_.push_back({u, static_cast<int>(p), size(), 0});
        auto const decays = slot.decays ? optim::WeightDecay::applies : optim::WeightDecay::skipped;
        for (std::int64_t i = 0; i < slot.end() - slot.offset; ++i)
          elements_.push_back({places_.size() - 1, i,
                               static_cast<int>((slot.offset.value() + i) / unit.shard_numel),
                               spec_.value("weight_decay", spec_.group_of(decays))});
        places_.back().end = size();
      }
      ++shared;
    }
    for (int r = 0; r < plan.ranks(); ++r)
      ranks_.push_back({Doubles(size()), Doubles(size()), Doubles(size())});
    v = fresh = server = Doubles(size());
    coefficient = scaling = Doubles(places_.size());
    factor = Doubles(places_.size());
    for (auto& rank : ranks_)
      for (std::size_t k = 0; k < size(); ++k) rank.weight[k] = initial_of(initial, k);
  }

  struct Place {  ///< a parameter
    zero::UnitIndex unit;
    int parameter;
    std::size_t begin, end;
  };
  struct Rank {
    Doubles weight, m, error;
  };
  std::vector<Place> const& places() const { return places_; }
  Rank const& rank(int r) const { return ranks_[static_cast<std::size_t>(r)]; }
  int t() const { return t_; }

  void step(double lr) {
    ++t_;
    is_lamb() ? one_bit_lamb(lr) : one_bit_adam(lr);
  }
  /// What a checkpoint does.
  void average_errors() {
    for (std::size_t k = 0; k < size(); ++k) set_all(&Rank::error, k, mean(&Rank::error, k));
  }
  /// The states and steps of @p other after average_errors(), on the ranks of this one.
  void continue_from(OneBitReference other) {
    other.plan_ = plan_;
    other.gradient_ = gradient_;
    other.elements_ = elements_;
    other.ranks_.assign(ranks_.size(), Rank(other.ranks_.front()));
    *this = std::move(other);
  }
  /// The smallest value that has been sent as a sign, by its scale: where it is near the rounding
  /// of fp32, the engine may send the other sign, and no comparison holds.
  double closest_sign = 1.0;
  Doubles v, fresh, server;
  Doubles coefficient, factor, scaling;  ///< values of parameters

 private:
  struct Element {
    std::size_t place;
    std::int64_t index;
    int server;
    double decay;
  };
  bool is_lamb() const { return spec_.algorithm == "OneBitLamb"; }
  std::size_t size() const { return elements_.size(); }
  double value(char const* name) const { return spec_.value(name); }
  double initial_of(Initial const& initial, std::size_t k) const {
    auto const& e = elements_[k];
    return initial(places_[e.place].unit, places_[e.place].parameter, e.index);
  }
  double gradient(std::size_t r, std::size_t k) const {
    auto const& e = elements_[k];
    auto const& place = places_[e.place];
    return gradient_(static_cast<int>(r), place.unit, place.parameter, e.index,
                     ranks_[r].weight[k]);
  }
  double mean_gradient(std::size_t k) const {
    double sum = 0.0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) sum += gradient(r, k);
    return sum / static_cast<double>(ranks_.size());
  }
  double mean(Doubles Rank::*member, std::size_t k) const {
    double sum = 0.0;
    for (auto const& rank : ranks_) sum += (rank.*member)[k];
    return sum / static_cast<double>(ranks_.size());
  }
  void set_all(Doubles Rank::*member, std::size_t k, double x) {
    for (auto& rank : ranks_) (rank.*member)[k] = x;
  }

  /// Signs times the scale of their group, which are subtracted from @p values.
  template <class Group>
  Doubles compressed(Doubles& values, Group const& group) {
    std::map<std::size_t, std::pair<double, double>> squares;
    for (std::size_t k = 0; k < size(); ++k) {
      auto& [sum, count] = squares[group(k)];
      sum += values[k] * values[k];
      count += 1.0;
    }
    Doubles out(size());
    for (std::size_t k = 0; k < size(); ++k) {
      auto const& [sum, count] = squares[group(k)];
      double const scale = std::sqrt(sum / count);
      out[k] = values[k] >= 0.0 ? scale : -scale;
      closest_sign = std::min(closest_sign, std::abs(values[k]) / scale);
      values[k] -= out[k];
    }
    return out;
  }
  /// The compressed all-reduce of the ranks' errors, to which the values have been added.
  Doubles exchanged() {
    if (ranks_.size() == 1) {
      auto const out = ranks_[0].error;
      ranks_[0].error.assign(size(), 0.0);
      return out;
    }
    auto const of_scale = [&](std::size_t k) { return scales_[elements_[k].place]; };
    for (auto& rank : ranks_) {
      auto const sent = compressed(rank.error, of_scale);
      for (std::size_t k = 0; k < size(); ++k)
        server[k] += sent[k] / static_cast<double>(ranks_.size());
    }
    return compressed(server, [&](std::size_t k) {
      return of_scale(k) * ranks_.size() + static_cast<std::size_t>(elements_[k].server);
    });
  }

  double denominator(double variance) const { return std::sqrt(variance) + value("eps"); }
  double momentum(double m, double g) const {
    return value("beta1") * m + (1 - value("beta1")) * g;
  }
  double update_of(std::size_t r, std::size_t k) const {
    return ranks_[r].m[k] / denominator(v[k]) + elements_[k].decay * ranks_[r].weight[k];
  }
  void move(double lr) {
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (std::size_t k = 0; k < size(); ++k) ranks_[r].weight[k] -= lr * update_of(r, k);
  }
  void reduced_moments() {
    for (std::size_t k = 0; k < size(); ++k) {
      double const g = mean_gradient(k);
      set_all(&Rank::m, k, momentum(ranks_[0].m[k], g));
      v[k] = value("beta2") * v[k] + (1 - value("beta2")) * g * g;
    }
  }

  void one_bit_adam(double lr) {
    if (t_ <= value("freeze_step")) {
      reduced_moments();
      return move(lr);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (std::size_t k = 0; k < size(); ++k)
        ranks_[r].error[k] += momentum(ranks_[r].m[k], gradient(r, k));
    auto const x = exchanged();
    for (std::size_t k = 0; k < size(); ++k) set_all(&Rank::m, k, x[k]);
    move(lr);
  }

  void lamb_move(
      double lr,
      std::function<double(std::size_t place, double weights, double update)> const& ratio) {
    for (std::size_t p = 0; p < places_.size(); ++p) {
      Doubles updates;
      double weights = 0.0, update = 0.0;
      for (std::size_t k = places_[p].begin; k < places_[p].end; ++k) {
        updates.push_back(update_of(0, k));
        weights += ranks_[0].weight[k] * ranks_[0].weight[k];
        update += updates.back() * updates.back();
      }
      double const r = ratio(p, std::sqrt(weights), std::sqrt(update));
      for (std::size_t k = places_[p].begin; k < places_[p].end; ++k)
        set_all(&Rank::weight, k, ranks_[0].weight[k] - lr * r * updates[k - places_[p].begin]);
    }
  }
  void one_bit_lamb(double lr) {
    if (t_ <= value("freeze_step")) {
      reduced_moments();
      fresh = v;
      factor.assign(places_.size(), 1.0);
      return lamb_move(lr, [&](std::size_t p, double weights, double update) {
        double const r = std::clamp(weights / update, value("min_coeff"), value("max_coeff"));
        if (r != 1.0)
          coefficient[p] = value("coeff_beta") * coefficient[p] + (1 - value("coeff_beta")) * r;
        return r;
      });
    }
    auto const last = ranks_[0].m;
    if (t_ == value("freeze_step") + 1)
      for (std::size_t p = 0; p < places_.size(); ++p) {
        double squares = 0.0;
        for (std::size_t k = places_[p].begin; k < places_[p].end; ++k)
          squares += last[k] * last[k];
        scaling[p] =
            1.0 / std::sqrt(squares / static_cast<double>(places_[p].end - places_[p].begin));
      }
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (std::size_t k = 0; k < size(); ++k)
        ranks_[r].error[k] += scaling[elements_[k].place] * momentum(last[k], gradient(r, k));
    auto const x = exchanged();
    for (std::size_t k = 0; k < size(); ++k) {
      set_all(&Rank::m, k, x[k] / scaling[elements_[k].place]);
      double const g = (ranks_[0].m[k] - last[k] * value("beta1")) / (1 - value("beta1"));
      fresh[k] = value("beta2") * fresh[k] + (1 - value("beta2")) * g * g;
    }
    lamb_move(lr, [&](std::size_t p, double, double update) { return next_ratio(p, update); });
  }
  double next_ratio(std::size_t p, double update) {
    double next = 0.0, squares = 0.0;
    for (std::size_t k = places_[p].begin; k < places_[p].end; ++k) {
      next = std::max(next, denominator(v[k]) / denominator(fresh[k]));
      squares += std::pow(ranks_[0].m[k] / denominator(v[k]), 2.0);
    }
    if (elements_[places_[p].begin].decay > 0.0) {
      double const share = std::min(1.0, std::sqrt(squares) / update);
      next = next * share + (1.0 - share);
    }
    next = std::clamp(next, value("factor_min"), value("factor_max"));
    next = std::clamp(next, factor[p] * (1 - value("factor_threshold")),
                      factor[p] * (1 + value("factor_threshold")));
    factor[p] = next;
    return coefficient[p] * next;
  }

  optim::OptimizerSpec spec_;
  zero::PartitionPlan plan_;
  Gradient gradient_;
  std::vector<Place> places_;
  std::vector<std::size_t> scales_;  ///< scales of parameters
  std::vector<Element> elements_;
  std::vector<Rank> ranks_;
  int t_ = 0;
};

}  // namespace tessera::test
