#pragma once
/// The weights of a pass that is only planned: the pass makes its allocations in an arena without
/// memory, and no kernel runs.

#include <optional>
#include <string>
#include <vector>

#include "layers/pass.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::model::detail {

/// Views with the shapes of the parameters and addresses that nothing may access.
class PlanningParams final : public memory::ParamProvider {
 public:
  /// @param copies dtype of copies of the weights, as a device has them; none: there are none
  PlanningParams(std::vector<UnitSpec> const& units, Dtype dtype, std::optional<Dtype> copies = {});
  void begin_pass(memory::Pass /*pass*/, std::vector<memory::UnitIndex> /*acquisitions*/) override {
  }
  WeightLease acquire(memory::UnitIndex unit, Queue& compute) override;
  GradientLease gradient(memory::UnitIndex unit, Queue& compute) override;
  void gradient_complete(memory::UnitIndex /*unit*/, Queue& /*compute*/) override {}

 private:
  std::vector<TensorView> views_of(memory::UnitIndex unit, Dtype dtype,
                                   std::uintptr_t address) const;

  std::vector<UnitSpec> const& units_;
  Dtype dtype_;
  std::optional<Dtype> copies_;
  std::vector<bool> has_gradient_;
};

// What the parts of a layer of one's own learn and leave while a model is composed.

/// The attention parts of a model, in the order in which they were built.
struct AttentionParts {
  int count = 0;
  int kv_heads = 0, head_dim = 0;  ///< heads of the first attention part
  bool equal = true;               ///< all others have the same

  void add(int kv, int dim) {
    if (count++ == 0) kv_heads = kv, head_dim = dim;
    equal = equal && kv == kv_heads && dim == head_dim;
  }
};

struct LayerPlan {
  memory::UnitSpec& unit;
  std::string name;
  std::optional<kernels::RotaryOptions> const& rotary;
  AttentionParts& attention;

  std::string below(std::string const& part) const { return name + "." + part; }
};

}  // namespace tessera::model::detail
