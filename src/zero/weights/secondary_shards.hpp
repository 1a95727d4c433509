#pragma once
/// A second partition of the gathered weights of stage 3, over a group of consecutive ranks that is
/// much smaller than all ranks: after the first gather of a step each rank keeps its part of it,
/// and later gathers of the same weights stay within the group. Wang et al., "ZeRO++: Extremely
/// Efficient Collective Communication for Giant Model Training", ICLR'24, section 3.2 (hpZ).

#include <memory>
#include <vector>

#include "transfer/comm_buffer.hpp"
#include "weights/gather_source.hpp"

namespace tessera::zero::detail {

class SecondaryShards final : public GatherSource {
 public:
  /// @param context its `secondary` is the group; the number of its ranks divides that of the plan
  /// @param next the source of units that are not kept
  SecondaryShards(StoreContext const& context, std::unique_ptr<GatherSource> next);

  /// All-gathers @p unit from the kept parts, if there are any.
  Gather start(UnitIndex unit, BufferPool::Entry const& out) override;
  /// Keeps this rank's part of what the next source has gathered, on the compute queue.
  void finish(UnitIndex unit, BufferPool::Entry const& out) override;
  void drop(UnitIndex unit) override { next_->drop(unit); }
  bool reads_shard(UnitIndex unit) const override { return !kept_of(unit).valid; }
  void forget(UnitIndex unit) override { units_[position(unit)].valid = false; }
  void add_bytes(WeightReport& report) const override;

 private:
  struct Kept {
    bool valid = false;
    memory::Event written;
  };
  Kept const& kept_of(UnitIndex unit) const { return units_[position(unit)]; }
  std::int64_t numel(UnitIndex unit) const;
  memory::TensorView part_of(UnitIndex unit) const;

  StoreContext context_;
  std::unique_ptr<GatherSource> next_;
  comm::Collectives& group_;
  CommBuffer parts_;
  std::vector<Kept> units_;
};

}  // namespace tessera::zero::detail
