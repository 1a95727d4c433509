#include "weights/secondary_shards.hpp"

#include <algorithm>
#include <utility>

#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

SecondaryShards::SecondaryShards(StoreContext const& context, std::unique_ptr<GatherSource> next)
    : context_(context),
      next_(std::move(next)),
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

void SecondaryShards::finish(UnitIndex unit, BufferPool::Entry const& out) {
  if (kept_of(unit).valid) return;
  next_->finish(unit, out);
  auto const mine = part_of(unit);
  memory::copy(context_.compute, mine.data(),
               out.data.rows(group_.rank() * mine.numel(), mine.numel()).data(), mine.bytes());
  units_[position(unit)] = {true, context_.compute.record()};
}

GatherSource::Gather SecondaryShards::start(UnitIndex unit, BufferPool::Entry const& out) {
  if (!kept_of(unit).valid) return next_->start(unit, out);
  auto const mine = part_of(unit);
  auto const& written = kept_of(unit).written;
  auto const after = written.done() ? out.ready : context_.compute.record();  // includes both
  std::int64_t const n = mine.numel(),
                     most = std::max(PartitionPlan::default_alignment,
                                     context_.config.allgather_bucket_size / group_.size());
  comm::Pending last;
  for (std::int64_t first = 0; first < n; first += most)
    last = group_.all_gather(mine, out.data, {std::min(most, n - first), n, first}, after);
  return {last, out.ready};
}

void SecondaryShards::add_bytes(WeightReport& report) const {
  report.weight_bytes += parts_.bytes();
  next_->add_bytes(report);
}

}  // namespace tessera::zero::detail
