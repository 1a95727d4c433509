#pragma once
/// Follows per unit the progress of its gradients in this micro-step, and which elements no kernel
/// overwrites.

#include <vector>

#include "layout/unit_views.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::zero::detail {

class UnitProgress {
 public:
  UnitProgress(PartitionPlan const& plan, std::vector<memory::UnitSpec> const& units);

  void begin_micro_step();
  /// True for the first lease of the micro-step. @throws InternalError after complete()
  bool open(UnitIndex unit);
  void complete(UnitIndex unit);
  /// @throws InternalError naming the first unit that is not complete
  void expect_all_complete() const;

  /// Zeroes the untied parameters of a unit with tied ones: the first contributor may leave them
  /// unwritten. Every contributor writes the tied parameters.
  void clear_untied(memory::Queue& compute, UnitIndex unit, memory::TensorView gradients) const;
  /// Zeroes the padding, so that sums over the full buffer contain only gradients.
  void clear_padding(memory::Queue& compute, UnitIndex unit, memory::TensorView gradients) const;

 private:
  enum class State { untouched, open, complete };
  State& state(UnitIndex unit) { return states_[position(unit)]; }

  PartitionPlan const* plan_;
  std::vector<State> states_;
  std::vector<std::vector<Run>> untied_, padding_;
};

}  // namespace tessera::zero::detail
