#pragma once
/// A second partition of the gathered weights of stage 3, over a group of consecutive ranks that is
/// much smaller than all ranks: after the first gather of a step each rank keeps its part of it,
/// and later gathers of the same weights stay within the group. Wang et al., "ZeRO++: Extremely
/// Efficient Collective Communication for Giant Model Training", ICLR'24, section 3.2 (hpZ).

#include <vector>

#include "transfer/comm_buffer.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class SecondaryShards {
 public:
  /// @param context its `secondary` is the group; the number of its ranks divides that of the plan
  explicit SecondaryShards(StoreContext const& context);

  bool has(UnitIndex unit) const { return units_[position(unit)].valid; }
  /// Keeps this rank's part of the gathered @p unit [padded unit], on the compute queue.
  void keep(UnitIndex unit, memory::TensorView gathered);
  /// All-gathers @p unit from the kept parts. @pre has(unit)
  comm::Pending gather(UnitIndex unit, memory::TensorView out, memory::Event const& ready);
  /// The weights of @p unit change.
  void forget(UnitIndex unit) { units_[position(unit)].valid = false; }
  std::size_t bytes() const { return parts_.bytes(); }

 private:
  struct Kept {
    bool valid = false;
    memory::Event written;
  };
  std::int64_t numel(UnitIndex unit) const;
  memory::TensorView part_of(UnitIndex unit) const;

  StoreContext context_;
  comm::Collectives& group_;
  CommBuffer parts_;
  std::vector<Kept> units_;
};

}  // namespace tessera::zero::detail
