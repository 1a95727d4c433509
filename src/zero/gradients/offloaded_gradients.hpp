#pragma once
/// Gradients that leave the device for a host that updates.

#include <memory>
#include <vector>

#include "gradients/gradient_flow.hpp"
#include "layout/offload.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::zero::detail {

/// Gradients of the regions that the host updates, in host memory: they leave the device unit by
/// unit as they are reduced, and tile by tile, so that the update of a tile can start while later
/// ones arrive. Their squares are summed on the device before they leave.
class HostGradients {
 public:
  /// @param dtype of the gradients
  HostGradients(StoreContext const& context, Offload offload, Dtype dtype);

  bool has(UnitIndex unit) const { return offload_.has(unit); }
  void* region(UnitIndex unit) const;
  /// Elements of all regions in host memory; the others come after them in the partition.
  std::int64_t end() const { return offload_.numel(context_.ownership); }

  /// Copies the region of @p unit, which is at @p from once @p ready has happened, to the host.
  /// The sums are complete in the last micro-step: their squares are added then, of a unit that
  /// stays on the device too.
  enum class Sums { partial, complete };
  /// @return the device memory may be written after this event
  memory::Event leave(UnitIndex unit, void const* from, memory::Event const& ready, Sums sums);
  /// Copies the region back to @p to, which may be written after @p ready.
  memory::Event bring(UnitIndex unit, void* to, memory::Event const& ready);

  /// Later work of @p queue finds the elements of @p tile in host memory.
  void order_before(memory::Queue& queue, std::size_t tile) const { queue.wait(arrived_[tile]); }
  /// Later work of @p queue finds the elements of all tiles in host memory.
  void order_all_before(memory::Queue& queue) const;
  /// Later gradients do not arrive in @p tile before this event.
  void keep_until(std::size_t tile, memory::Event const& read) { read_[tile] = read; }

  /// Enqueues what kernels::gradient_statistics() writes for all units.
  void total(memory::Queue& compute, double* sums) const;
  void synchronize() const;

  std::size_t bytes() const { return values_.bytes(); }
  std::size_t pinned_bytes() const {
    return values_.space() == memory::MemorySpace::pinned ? values_.bytes() : 0;
  }

 private:
  std::size_t bytes_of(std::int64_t numel) const {
    return static_cast<std::size_t>(numel) * size_of(dtype_);
  }

  StoreContext context_;
  Offload offload_;
  Dtype dtype_;
  std::unique_ptr<memory::Queue> out_, in_;
  memory::Buffer values_;                 ///< by Ownership::state_offset()
  memory::Buffer partial_;                ///< partial sums of squares, on the device
  std::vector<std::int64_t> partial_of_;  ///< the first one of each unit, and the end
  std::vector<memory::Event> arrived_;    ///< arrival of each tile
  std::vector<memory::Event> read_;       ///< last read of each tile, by the update
  memory::Event measured_;                ///< the last sums of squares
};

/// Makes the flow of stages 2 and 3, where the device has gradients of the units in flight only.
/// @param host outlives the flow
std::unique_ptr<GradientFlow> make_offloaded_gradients(StoreContext const& context,
                                                       StageRules const& rules,
                                                       std::vector<memory::UnitSpec> const& units,
                                                       HostGradients& host);

}  // namespace tessera::zero::detail
