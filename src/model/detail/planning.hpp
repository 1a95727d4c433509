#pragma once
/// The queue and the weights of a pass that is only planned: the pass makes its allocations in an
/// arena without memory, and no kernel runs.

#include <string_view>
#include <utility>
#include <vector>

#include "detail/pass.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::model::detail {

/// Drops all work. Kernels choose their workspaces by the kind of the queue.
class PlanningQueue final : public Queue {
 public:
  explicit PlanningQueue(memory::MemorySpace space) : space_(space) {}
  memory::QueueKind kind() const override {
    return space_ == memory::MemorySpace::device ? memory::QueueKind::stream
                                                 : memory::QueueKind::worker;
  }
  std::string_view name() const override { return "planning"; }
  void submit(std::function<void()> /*task*/) override {}
  memory::Event record() override { return {}; }
  void wait(memory::Event const& /*event*/) override {}

 private:
  memory::MemorySpace space_;
};

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
