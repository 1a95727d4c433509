#pragma once
/// A model whose gradients are known in closed form: each sample s adds  1/2 sum_i a_si (w_i -
/// b_si)^2  to the loss, over all elements i of all parameters, with a and b random numbers of
/// (sample, parameter, element). It uses its provider as a transformer does: embedding, blocks and
/// head forward, then back, with an embedding that is tied to the head and gets gradients from
/// both.

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/random.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::test {

using memory::first_unit;
using memory::UnitIndex;

inline float load(memory::ConstTensorView view, std::int64_t i) {
  switch (view.dtype()) {
    case Dtype::fp16:
      return static_cast<float16 const*>(view.data())[i];
    case Dtype::bf16:
      return static_cast<bfloat16 const*>(view.data())[i];
    default:
      return static_cast<float const*>(view.data())[i];
  }
}
inline float rounded(float value, Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
      return float16(value);
    case Dtype::bf16:
      return bfloat16(value);
    default:
      return value;
  }
}
inline void store(memory::TensorView view, std::int64_t i, float value) {
  switch (view.dtype()) {
    case Dtype::fp16:
      static_cast<float16*>(view.data())[i] = float16(value);
      break;
    case Dtype::bf16:
      static_cast<bfloat16*>(view.data())[i] = bfloat16(value);
      break;
    default:
      static_cast<float*>(view.data())[i] = value;
  }
}

class QuadraticModel {
 public:
  explicit QuadraticModel(int blocks, bool even = false) : blocks_(blocks) {
    auto const p = [](std::string name, std::vector<std::int64_t> shape, bool decays,
                      std::vector<std::string> aliases = {}) {
      return memory::ParameterSpec{
          std::move(name), std::move(shape), {}, decays, std::move(aliases)};
    };
    if (even) {  // shapes that leave no padding for 1, 2 and 4 ranks
      units_.push_back(
          {"embedding", {p("wte", {64, 16}, true, {"head.weight"}), p("wpe", {8, 16}, true)}});
      for (int b = 0; b < blocks; ++b)
        units_.push_back({concat("block.", b), {p("w", {16, 32}, true), p("b", {128}, false)}});
      units_.push_back({"head", {p("norm", {128}, false)}});
    } else {
      units_.push_back(
          {"embedding", {p("wte", {37, 5}, true, {"head.weight"}), p("wpe", {11, 5}, true)}});
      for (int b = 0; b < blocks; ++b)
        units_.push_back({concat("block.", b),
                          {p("w", {7, 21}, true), p("b", {21}, false), p("s", {1}, false),
                           p("k", {3, 2, 5, 1 + b}, true)}});
      units_.push_back({"head", {p("norm", {5}, false)}});
    }
  }

  std::vector<memory::UnitSpec> const& units() const { return units_; }
  /// Only the parameters called @p names, in any unit, train.
  QuadraticModel& train_only(std::vector<std::string> const& names) {
    for (auto& unit : units_)
      for (auto& p : unit.parameters)
        p.trains = std::find(names.begin(), names.end(), p.name) != names.end();
    return *this;
  }
  UnitIndex head() const { return UnitIndex(blocks_ + 1); }

  static float initial(UnitIndex unit, int parameter, std::int64_t i) {
    return 2.0f * Philox{7, stream(unit, parameter)}.uniform(static_cast<std::uint64_t>(i)) - 1.0f;
  }

  /// d loss / d w of samples [begin, begin + count) at weight @p w.
  static double gradient(UnitIndex unit, int parameter, std::int64_t i, int begin, int count,
                         double w) {
    double sum = 0.0;
    for (int s = begin; s < begin + count; ++s) {
      auto const at = static_cast<std::uint64_t>(2 * i);
      Philox const random{static_cast<std::uint64_t>(1000 + s), stream(unit, parameter)};
      double const a = 0.5 + random.uniform(at), b = 3.0 * random.uniform(at + 1) - 1.0;
      sum += a * (w - b);
    }
    return sum;
  }

  /// What happens to a value on its way into a gradient buffer, for tests of overflow.
  using Spoil = std::function<float(UnitIndex unit, int parameter, std::int64_t i, float gradient)>;
  Spoil spoil;
  /// Called between the passes with the weights of head and embedding.
  std::function<void(memory::WeightLease const& head, memory::WeightLease const& embedding)> watch;

  std::vector<UnitIndex> acquisitions() const {
    std::vector<UnitIndex> order{first_unit};
    for (int b = 1; b <= blocks_; ++b) order.push_back(UnitIndex(b));
    order.insert(order.end(), {head(), first_unit});
    for (int b = blocks_; b >= 1; --b) order.push_back(UnitIndex(b));
    order.push_back(first_unit);
    return order;
  }

  /// Gradients of the sum of losses of samples [begin, begin + count), multiplied by @p scale.
  void train(int begin, int count, double scale, memory::ParamProvider& params,
             memory::Queue& compute) const {
    params.begin_pass(memory::Pass::training, acquisitions());
    for (auto unit = first_unit; unit < head(); ++unit) (void)params.acquire(unit, compute);
    {
      auto const weights = params.acquire(head(), compute);
      auto const tied = params.acquire(first_unit, compute);
      if (watch) watch(weights, tied);
      contribute(head(), weights, params.gradient(head(), compute), begin, count, scale);
      // half of the tied matrix's gradient comes from here, half from the embedding itself
      if (units_[0].parameters[0].trains) {
        auto const shared = params.gradient(first_unit, compute);
        write(first_unit, 0, tied[0], shared[0], shared.accumulate(), begin, count, 0.5 * scale);
      }
      params.gradient_complete(head(), compute);
    }
    for (int b = blocks_; b >= 1; --b) {
      UnitIndex const unit{b};
      auto const weights = params.acquire(unit, compute);
      contribute(unit, weights, params.gradient(unit, compute), begin, count, scale);
      params.gradient_complete(unit, compute);
    }
    auto const weights = params.acquire(first_unit, compute);
    auto const gradients = params.gradient(first_unit, compute);
    write(first_unit, 0, weights[0], gradients[0], gradients.accumulate(), begin, count,
          0.5 * scale);
    write(first_unit, 1, weights[1], gradients[1], gradients.accumulate(), begin, count, scale);
    params.gradient_complete(first_unit, compute);
  }

  /// Calls visit(unit, parameter, element, value) with the weights as an evaluation sees them.
  template <class Visit>
  void look(memory::WeightProvider& params, memory::Queue& compute, Visit visit) const {
    std::vector<UnitIndex> order;
    for (auto u = first_unit; u <= head(); ++u) order.push_back(u);
    params.begin_pass(memory::Pass::evaluation, order);
    for (auto const u : order) {
      auto const weights = params.acquire(u, compute);
      for (std::size_t p = 0; p < weights.size(); ++p)
        for (std::int64_t i = 0; i < weights[p].numel(); ++i)
          visit(u, static_cast<int>(p), i, load(weights[p], i));
    }
  }

 private:
  static std::uint64_t stream(UnitIndex unit, int parameter) {
    return static_cast<std::uint64_t>(16 * position(unit) + static_cast<std::size_t>(parameter));
  }

  void contribute(UnitIndex unit, memory::WeightLease const& weights,
                  memory::GradientLease const& gradients, int begin, int count,
                  double scale) const {
    for (std::size_t p = 0; p < weights.size(); ++p)
      write(unit, static_cast<int>(p), weights[p], gradients[p], gradients.accumulate(), begin,
            count, scale);
  }

  void write(UnitIndex unit, int parameter, memory::ConstTensorView weights, memory::TensorView out,
             bool accumulate, int begin, int count, double scale) const {
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      auto g =
          static_cast<float>(scale * gradient(unit, parameter, i, begin, count, load(weights, i)));
      if (spoil) g = spoil(unit, parameter, i, g);
      store(out, i, accumulate ? load(out, i) + g : g);
    }
  }

  int blocks_;
  std::vector<memory::UnitSpec> units_;
};

}  // namespace tessera::test
