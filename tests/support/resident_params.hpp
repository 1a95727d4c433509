#pragma once
/// A ParamProvider of one process whose weights stay in memory: for model tests and
/// profiles. Checks the protocol: units are acquired in prefetch order, and every unit's gradients
/// are completed exactly once per micro-step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/dtype.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::test {

class ResidentParams : public memory::ParamProvider {
 public:
  /// Values of a parameter's elements, fp32.
  using Fill = std::function<void(memory::ParameterSpec const& spec, float* out)>;

  ResidentParams(std::vector<memory::UnitSpec> const& units, Dtype dtype, Fill const& fill)
      : units_(units), dtype_(dtype) {
    for (auto const& unit : units_) {
      std::size_t bytes = 0;
      for (auto const& spec : unit.parameters) bytes += padded_bytes(spec);
      weights_.emplace_back("weights of " + unit.name, memory::Purpose::weights, bytes);
      gradients_.emplace_back("gradients of " + unit.name, memory::Purpose::gradients, bytes);
      for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
        std::vector<float> values(static_cast<std::size_t>(unit.parameters[p].numel()));
        fill(unit.parameters[p], values.data());
        store(view(weights_.back(), unit, p), values);
      }
    }
    begin_step();
  }

  /// Gradients of the next micro-step overwrite; the buffers' previous content is not a number,
  /// so that nothing relies on it.
  void begin_step() {
    has_values_.assign(units_.size(), false);
    for (auto const& buffer : gradients_) std::memset(buffer.data(), 0xFF, buffer.bytes());
  }

  void begin_pass(memory::Pass, std::vector<memory::UnitIndex> acquisitions) override {
    EXPECT_EQ(next_, announced_.size())
        << "the last pass did not make all the acquisitions it announced";
    announced_.clear();
    for (auto const unit : acquisitions) announced_.push_back(index(unit));
    next_ = 0;
    completed.clear();
  }
  memory::WeightLease acquire(memory::UnitIndex unit, memory::Queue&) override {
    EXPECT_LT(next_, announced_.size());
    if (next_ < announced_.size()) {
      EXPECT_EQ(announced_[next_], index(unit)) << "acquisition " << next_;
    }
    ++next_;
    std::vector<memory::ConstTensorView> views;
    for (std::size_t p = 0; p < spec(index(unit)).parameters.size(); ++p)
      views.push_back(weight(index(unit), p));
    ++leased;
    most_leased = std::max(most_leased, leased);
    return {std::move(views), [this] { --leased; }};
  }
  memory::GradientLease gradient(memory::UnitIndex unit, memory::Queue&) override {
    std::vector<memory::TensorView> views;
    for (std::size_t p = 0; p < spec(index(unit)).parameters.size(); ++p)
      views.push_back(spec(index(unit)).parameters[p].trains ? gradient_view(index(unit), p)
                                                             : memory::TensorView{});
    bool const holds_values = has_values_[position(unit)];
    has_values_[position(unit)] = true;
    return {std::move(views), holds_values ? memory::WriteMode::add : memory::WriteMode::overwrite};
  }
  void gradient_complete(memory::UnitIndex unit, memory::Queue&) override {
    completed.push_back(index(unit));
  }

  static int index(memory::UnitIndex unit) { return static_cast<int>(unit); }
  memory::UnitSpec const& spec(int unit) const { return units_[static_cast<std::size_t>(unit)]; }
  memory::TensorView weight(int unit, std::size_t p) const {
    return view(weights_[static_cast<std::size_t>(unit)], spec(unit), p);
  }
  memory::TensorView gradient_view(int unit, std::size_t p) const {
    return view(gradients_[static_cast<std::size_t>(unit)], spec(unit), p);
  }
  std::vector<float> weight_values(int unit, std::size_t p) const { return load(weight(unit, p)); }
  std::vector<float> gradient_values(int unit, std::size_t p) const {
    return load(gradient_view(unit, p));
  }
  void set_weight(int unit, std::size_t p, std::vector<float> const& values) {
    store(weight(unit, p), values);
  }

  /// Calls @p visit(unit, parameter, spec) for every parameter.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t u = 0; u < units_.size(); ++u)
      for (std::size_t p = 0; p < units_[u].parameters.size(); ++p)
        visit(static_cast<int>(u), p, units_[u].parameters[p]);
  }

  std::vector<int> completed;  ///< units, in the order of gradient_complete, of the last pass
  std::vector<int> const& announced() const { return announced_; }
  int leased = 0, most_leased = 0;

 private:
  std::size_t padded_bytes(memory::ParameterSpec const& spec) const {
    return (static_cast<std::size_t>(spec.numel()) * size_of(dtype_) + 63) / 64 * 64;
  }
  memory::TensorView view(memory::Buffer const& buffer, memory::UnitSpec const& unit,
                          std::size_t p) const {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < p; ++i) offset += padded_bytes(unit.parameters[i]);
    auto const& shape = unit.parameters[p].shape;
    return shape.size() == 1 ? buffer.view(dtype_, {shape[0]}, offset)
                             : buffer.view(dtype_, {shape[0], shape[1]}, offset);
  }
  static std::vector<float> load(memory::TensorView from) {
    std::vector<float> out(static_cast<std::size_t>(from.numel()));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = from.dtype() == Dtype::fp32 ? static_cast<float const*>(from.data())[i]
               : from.dtype() == Dtype::bf16
                   ? static_cast<float>(static_cast<bfloat16 const*>(from.data())[i])
                   : static_cast<float>(static_cast<float16 const*>(from.data())[i]);
    return out;
  }
  static void store(memory::TensorView to, std::vector<float> const& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (to.dtype() == Dtype::fp32)
        static_cast<float*>(to.data())[i] = values[i];
      else if (to.dtype() == Dtype::bf16)
        static_cast<bfloat16*>(to.data())[i] = bfloat16(values[i]);
      else
        static_cast<float16*>(to.data())[i] = float16(values[i]);
    }
  }

  std::vector<memory::UnitSpec> units_;
  Dtype dtype_;
  std::vector<memory::Buffer> weights_, gradients_;
  std::vector<bool> has_values_;
  std::vector<int> announced_;
  std::size_t next_ = 0;
};

}  // namespace tessera::test
