#pragma once
/// Staging buffers of unit size for gradients in the working dtype: kernels write to them until the
/// unit is complete.

#include <optional>
#include <utility>
#include <vector>

#include "gradients/unit_progress.hpp"
#include "transfer/buffer_pool.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class GradientStaging {
 public:
  GradientStaging(StoreContext const& context, UnitProgress const& progress, std::size_t units)
      : context_(context),
        progress_(progress),
        pool_("gradients of a unit", context.config.dtype, context.comm),
        open_(units) {}

  /// @param first no kernel has written the unit's gradients in this micro-step, so elements that
  /// no kernel will overwrite are zeroed
  memory::GradientLease lend(UnitIndex unit, bool first) {
    auto& buffer = open_[position(unit)];
    auto const& layout = context_.plan.unit(unit);
    if (first) {
      buffer = pool_.take(layout.padded_numel);
      context_.compute.wait(buffer->ready);
      progress_.clear_untied(context_.compute, unit, buffer->data);
      progress_.clear_padding(context_.compute, unit, buffer->data);
    }
    return {parameter_views(layout, buffer->data.data(), buffer->data.dtype()),
            first ? memory::WriteMode::overwrite : memory::WriteMode::add};
  }

  /// The buffer of a complete unit, which goes back to the pool with give_back().
  BufferPool::Entry take(UnitIndex unit) {
    return *std::exchange(open_[position(unit)], std::nullopt);
  }
  void give_back(BufferPool::Entry const& buffer, memory::Event ready) {
    pool_.give_back(buffer, std::move(ready));
  }
  std::size_t bytes() const { return pool_.bytes(); }

 private:
  StoreContext context_;
  UnitProgress const& progress_;
  BufferPool pool_;
  std::vector<std::optional<BufferPool::Entry>> open_;
};

}  // namespace tessera::zero::detail
