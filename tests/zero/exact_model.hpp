#pragma once
/// A model whose gradients are small integers times a power of two: sums over samples, ranks and
/// micro-steps are exact in fp32, bf16 and fp16, so that every order of them has the same bits.
/// The loss is an integer that depends on every weight that a pass sees.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "quadratic_model.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::test {

/// The values of a unit's parameters.
using UnitValues = std::vector<std::vector<float>>;
using ModelValues = std::vector<UnitValues>;

class ExactModel {
 public:
  /// An embedding that is tied to the head, two blocks, one of them with a matrix that is large
  /// enough for 8-bit states, and the head. Most sizes are odd.
  ExactModel() {
    auto const p = [](char const* name, std::vector<std::int64_t> shape, bool decays) {
      return memory::ParameterSpec{name, std::move(shape), {}, decays, {}};
    };
    units_ = {{"embedding", {p("wte", {37, 5}, true), p("wpe", {11, 5}, true)}},
              {"block.0", {p("w", {65, 67}, true), p("b", {67}, false), p("s", {1}, false)}},
              {"block.1", {p("w", {7, 21}, true), p("k", {3, 2, 5, 2}, true), p("b", {21}, false)}},
              {"head", {p("norm", {5}, false)}}};
    units_[0].parameters[0].aliases = {"head.weight"};
  }

  /// Parameters named @p parameter train no longer, in unit @p unit or (empty) in all units.
  ExactModel& freeze(std::string const& unit, std::string const& parameter = {}) {
    for (auto& u : units_)
      for (auto& p : u.parameters)
        if ((unit.empty() || u.name == unit) && (parameter.empty() || p.name == parameter))
          p.trains = false;
    return *this;
  }

  std::vector<memory::UnitSpec> const& units() const { return units_; }

  static float initial(UnitIndex unit, int parameter, std::int64_t i) {
    return static_cast<float>(draw(0, unit, parameter, i) % 2001) / 1000.0f - 1.0f;
  }

  /// Gradients of samples [begin, begin + count), multiplied by @p scale, a power of two.
  /// @param instead what the passes take for the weights; null: the provider's weights
  /// @return the loss
  double train(int begin, int count, double scale, memory::ParamProvider& params,
               memory::Queue& compute, ModelValues const* instead = nullptr) const {
    Samples const samples{begin, count, scale};
    auto const weights = [&](UnitIndex unit, memory::WeightLease const& lease) {
      auto read = values_of(lease, compute);
      return instead ? (*instead)[position(unit)] : read;
    };
    params.begin_pass(memory::Pass::training, acquisitions());
    double loss = 0.0;
    for (auto unit = first_unit; unit < head; ++unit)
      loss += loss_of(samples, unit, weights(unit, params.acquire(unit, compute)));
    {
      auto const lease = params.acquire(head, compute);
      auto const tied_lease = params.acquire(first_unit, compute);
      auto const values = weights(head, lease), tied = weights(first_unit, tied_lease);
      loss += loss_of(samples, head, values) + 3.0 * loss_of(samples, first_unit, tied);
      backward(samples, head, values, params, compute);
      if (units_[0].parameters[0].trains) {
        auto const shared = gradient_lease(first_unit, params, compute);
        add(samples.of_stream(head_stream), first_unit, 0, tied, shared);
      }
      params.gradient_complete(head, compute);
    }
    for (int b = position_of_head - 1; b >= 0; --b) {
      UnitIndex const unit{b};
      auto const lease = params.acquire(unit, compute);
      backward(samples, unit, weights(unit, lease), params, compute);
      params.gradient_complete(unit, compute);
    }
    return loss;
  }

  /// Weights as an evaluation sees them.
  ModelValues look(memory::WeightProvider& params, memory::Queue& compute) const {
    std::vector<UnitIndex> order;
    for (auto u = first_unit; u <= head; ++u) order.push_back(u);
    params.begin_pass(memory::Pass::evaluation, order);
    ModelValues out;
    for (auto const u : order) out.push_back(values_of(params.acquire(u, compute), compute));
    return out;
  }

 private:
  static constexpr int position_of_head = 3;
  static constexpr UnitIndex head{position_of_head};
  /// Stream of the tied matrix's gradients of the head
  static constexpr int head_stream = 1'000'000;

  struct Samples {
    int begin, count;
    double scale;
    Samples of_stream(int stream) const { return {begin + stream, count, scale}; }
  };

  std::vector<UnitIndex> acquisitions() const {
    std::vector<UnitIndex> order;
    for (auto u = first_unit; u <= head; ++u) order.push_back(u);
    for (int u : {0, 2, 1, 0}) order.push_back(UnitIndex(u));
    return order;
  }

  static std::uint64_t draw(int sample, UnitIndex unit, int parameter, std::int64_t i) {
    std::uint64_t x = (static_cast<std::uint64_t>(sample) << 36) +
                      (static_cast<std::uint64_t>(position(unit)) << 32) +
                      (static_cast<std::uint64_t>(parameter) << 28) + static_cast<std::uint64_t>(i);
    x += 0x9E3779B97F4A7C15u;  // SplitMix64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

  /// In multiples of 1 / steps. Weights that are no numbers are large ones.
  static int on_grid(float weight, float steps) {
    return static_cast<int>(std::nearbyint((std::abs(weight) < 8.0f ? weight : 8.0f) * steps));
  }
  static int target(int sample, UnitIndex unit, int parameter, std::int64_t i) {
    return static_cast<int>(draw(sample + 1, unit, parameter, i) % 193) - 96;
  }

  /// Returns a gradient of magnitude 7 or less, so that the sum of 16 samples from head and
  /// embedding has 8 bits.
  static int gradient(int sample, UnitIndex unit, int parameter, std::int64_t i, float weight) {
    return std::clamp((on_grid(weight, 64.0f) - target(sample, unit, parameter, i)) / 16, -7, 7);
  }

  static double loss_of(Samples const& samples, UnitIndex unit, UnitValues const& weights) {
    std::int64_t sum = 0;
    for (int s = samples.begin; s < samples.begin + samples.count; ++s)
      for (std::size_t p = 0; p < weights.size(); ++p)
        for (std::size_t i = 0; i < weights[p].size(); ++i) {
          std::int64_t const apart =
              on_grid(weights[p][i], 4096.0f) -
              64 * target(s, unit, static_cast<int>(p), static_cast<std::int64_t>(i));
          sum += apart * apart;
        }
    return static_cast<double>(sum);
  }

  /// The host reads the buffers of a lease once its queue has reached this point.
  static void wait(memory::Queue& compute) {
    compute.record().wait("the model's buffers", std::chrono::seconds(60));
  }
  static UnitValues values_of(memory::WeightLease const& lease, memory::Queue& compute) {
    wait(compute);
    UnitValues out(lease.size());
    for (std::size_t p = 0; p < lease.size(); ++p)
      for (std::int64_t i = 0; i < lease[p].numel(); ++i) out[p].push_back(load(lease[p], i));
    return out;
  }
  static memory::GradientLease gradient_lease(UnitIndex unit, memory::ParamProvider& params,
                                              memory::Queue& compute) {
    auto lease = params.gradient(unit, compute);
    wait(compute);
    return lease;
  }

  void backward(Samples const& samples, UnitIndex unit, UnitValues const& weights,
                memory::ParamProvider& params, memory::Queue& compute) const {
    auto const gradients = gradient_lease(unit, params, compute);
    for (int p = 0; p < static_cast<int>(weights.size()); ++p)
      add(samples, unit, p, weights, gradients);
  }
  void add(Samples const& samples, UnitIndex unit, int parameter, UnitValues const& weights,
           memory::GradientLease const& gradients) const {
    auto const k = static_cast<std::size_t>(parameter);
    if (!units_[position(unit)].parameters[k].trains) return;
    for (std::size_t i = 0; i < weights[k].size(); ++i) {
      auto const at = static_cast<std::int64_t>(i);
      int sum = 0;
      for (int s = samples.begin; s < samples.begin + samples.count; ++s)
        sum += gradient(s, unit, parameter, at, weights[k][i]);
      auto const g = static_cast<float>(samples.scale * sum);
      store(gradients[k], at, gradients.accumulate() ? load(gradients[k], at) + g : g);
    }
  }

  std::vector<memory::UnitSpec> units_;
};

}  // namespace tessera::test
