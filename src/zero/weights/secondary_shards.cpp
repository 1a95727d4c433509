#include "weights/secondary_shards.hpp"

#include <algorithm>

#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

SecondaryShards::SecondaryShards(StoreContext const& context)
    : context_(context),
      group_(*context.secondary),
      parts_(group_, "secondary shards of weights", memory::Purpose::weights, context.config.dtype,
             context.plan.padded_count() / group_.size()),
      units_(context.plan.units().size()) {}

std::int64_t SecondaryShards::numel(UnitIndex unit) const {
  return context_.plan.unit(unit).padded_numel / group_.size();
}

memory::TensorView SecondaryShards::part_of(UnitIndex unit) const {
  return parts_.view(full_offset(context_.plan, unit) / group_.size(), numel(unit));
}

void SecondaryShards::keep(UnitIndex unit, memory::TensorView gathered) {
  auto const mine = part_of(unit);
  memory::copy(context_.compute, mine.data(),
               gathered.rows(group_.rank() * mine.numel(), mine.numel()).data(), mine.bytes());
  units_[position(unit)] = {true, context_.compute.record()};
}

comm::Pending SecondaryShards::gather(UnitIndex unit, memory::TensorView out,
                                      memory::Event const& ready) {
  auto const mine = part_of(unit);
  auto const& written = units_[position(unit)].written;
  auto const after = written.done() ? ready : context_.compute.record();  // includes both
  std::int64_t const n = mine.numel(),
                     most = std::max(PartitionPlan::default_alignment,
                                     context_.config.allgather_bucket_size / group_.size());
  comm::Pending last;
  for (std::int64_t at = 0; at < n; at += most)
    last = group_.all_gather(mine, out, {std::min(most, n - at), n, at}, after);
  return last;
}

}  // namespace tessera::zero::detail
