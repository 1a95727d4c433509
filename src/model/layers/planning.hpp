#pragma once
/// The weights of a pass that is only planned: the pass makes its allocations in an arena without
/// memory, and no kernel runs.

#include <vector>

#include "layers/pass.hpp"

namespace tessera::model::detail {

/// Views with the shapes of the parameters and addresses that nothing may access.
class PlanningParams final : public memory::ParamProvider {
 public:
  PlanningParams(std::vector<UnitSpec> const& units, Dtype dtype);
  void begin_pass(memory::Pass /*pass*/, std::vector<memory::UnitIndex> /*acquisitions*/) override {
  }
  WeightLease acquire(memory::UnitIndex unit, Queue& compute) override;
  GradientLease gradient(memory::UnitIndex unit, Queue& compute) override;
  void gradient_complete(memory::UnitIndex /*unit*/, Queue& /*compute*/) override {}

 private:
  std::vector<TensorView> views_of(memory::UnitIndex unit) const;

  std::vector<UnitSpec> const& units_;
  Dtype dtype_;
  std::vector<bool> has_gradient_;
};

}  // namespace tessera::model::detail
