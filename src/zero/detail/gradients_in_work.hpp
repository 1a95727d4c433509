#pragma once
/// Unit-sized buffers for the gradients of the units in work, in the working dtype: lent to the
/// kernels until the unit is complete.

#include <optional>
#include <utility>
#include <vector>

#include "detail/slot_pool.hpp"
#include "detail/unit_progress.hpp"
#include "detail/weight_store.hpp"

namespace tessera::zero::detail {

class GradientsInWork {
 public:
  GradientsInWork(StoreContext const& context, UnitProgress const& progress, std::size_t units)
      : context_(context),
        progress_(progress),
        slots_("gradients of a unit", context.config.dtype, context.comm),
        open_(units) {}

  /// @param first no kernel has written the unit's gradients in this micro-step: what none will
  /// overwrite is zeroed
  memory::GradientLease lend(int unit, bool first) {
    auto& slot = open_[static_cast<std::size_t>(unit)];
    auto const& layout = context_.plan.unit(unit);
    if (first) {
      slot = slots_.take(layout.padded_numel);
      context_.compute.wait(slot->ready);
      progress_.clear_untied(context_.compute, unit, slot->data);
      progress_.clear_padding(context_.compute, unit, slot->data);
    }
    return {parameter_views(layout, slot->data.data(), slot->data.dtype()), !first};
  }

  /// The buffer of a complete unit, which goes back to the pool with give_back().
  SlotPool::Slot take(int unit) {
    return *std::exchange(open_[static_cast<std::size_t>(unit)], std::nullopt);
  }
  void give_back(SlotPool::Slot const& slot, memory::Event ready) {
    slots_.give_back(slot, std::move(ready));
  }
  std::size_t bytes() const { return slots_.bytes(); }

 private:
  StoreContext context_;
  UnitProgress const& progress_;
  SlotPool slots_;
  std::vector<std::optional<SlotPool::Slot>> open_;
};

}  // namespace tessera::zero::detail
