#pragma once
/// Optimizers whose update is one element-wise kernel. Such an optimizer is a kernel and a function
/// that gives the kernel's values of a step.

#include <memory>
#include <vector>

#include "tessera/kernels/optimizer/elementwise_update.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::optim::detail {

/// Sets what the kernels of all optimizers get: the segments, dtypes and control of @p out.
void set_segments(kernels::ElementwiseUpdate& out, OptimizerSpec const& spec,
                  Segments const& segments, StepControl const& control);

/// Splits segments into segments of one parameter each, without padding. @param states whose states
/// have the dtypes; those without a spec are fp32
Segments parameter_segments(Segments const& segments, std::vector<StateSpec> const& states = {});

/// @tparam values Step(OptimizerSpec const&, StepControl const&): the kernel's values of a step
/// @tparam kernel void(memory::Queue&, Step const&)
template <auto values, auto kernel>
class Elementwise final : public Optimizer {
 public:
  explicit Elementwise(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }

  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    if (segments.list.empty()) return;
    auto step = values(spec_, control);
    set_segments(step, spec_, segments, control);
    kernel(queue, step);
  }

 private:
  OptimizerSpec spec_;
};

template <auto values, auto kernel>
std::unique_ptr<Optimizer> make_elementwise(OptimizerSpec const& spec) {
  return std::make_unique<Elementwise<values, kernel>>(spec);
}

/// beta1, beta2, eps and weight_decay, which most variants of Adam have.
/// @param eps_meaning what eps is added to
std::vector<HyperparameterRule> adam_rules(char const* eps_meaning);

/// 1 - beta^t of step @p t.
double bias_correction(double beta, std::int64_t t);

}  // namespace tessera::optim::detail
