#include "weights/quantized_gather.hpp"

#include <algorithm>
#include <utility>

namespace tessera::zero::detail {

QuantizedGather::QuantizedGather(StoreContext const& context, ShardStore& shards)
    : context_(context),
      shards_(shards),
      format_{.bits = settings<ShardedWeights>(context.config).quantized_weight_bits},
      pool_("quantized weights", Dtype::uint8, context.comm),
      codes_(context.plan.units().size()) {}

kernels::QuantizedRegions QuantizedGather::regions(UnitIndex unit) const {
  return {format_, context_.plan.unit(unit).shard_numel, context_.plan.ranks()};
}

GatherSource::Gather QuantizedGather::start(UnitIndex unit, BufferPool::Entry const& out) {
  auto const shard = shards_.fetch(unit, out.ready);
  auto const of_unit = regions(unit);
  std::int64_t const bytes = kernels::code_bytes(format_, of_unit.numel);
  auto const& codes = codes_[position(unit)].emplace(pool_.take(of_unit.bytes()));
  auto& compute = context_.compute;
  compute.wait(codes.ready);
  compute.wait(shard.ready);
  kernels::encode_chunks(compute, codes.data.rows(context_.comm.rank() * bytes, bytes),
                         shard.values, {format_, of_unit.numel, 1});
  auto const arriving = all_gather(unit, codes.data);
  shards_.fetched(unit, compute.record());
  return {arriving, shard.begin};
}

comm::Pending QuantizedGather::all_gather(UnitIndex unit, memory::TensorView codes) {
  auto const of_unit = regions(unit);
  std::int64_t const bytes = kernels::code_bytes(format_, of_unit.numel);
  auto const after = context_.compute.record();
  std::int64_t const most = std::max(PartitionPlan::default_alignment,
                                     context_.config.allgather_bucket_size / of_unit.count);
  comm::Pending last;
  for (std::int64_t first = 0; first < bytes; first += most)
    last = context_.comm.all_gather(codes, {std::min(most, bytes - first), bytes, first}, after);
  return last;
}

void QuantizedGather::finish(UnitIndex unit, BufferPool::Entry const& out) {
  context_.compute.wait(out.ready);
  kernels::decode_chunks(context_.compute, out.data, codes_[position(unit)]->data, regions(unit));
  drop(unit);
}

void QuantizedGather::drop(UnitIndex unit) {
  auto const codes = std::exchange(codes_[position(unit)], std::nullopt);
  if (codes) pool_.give_back(*codes, context_.compute.record());
}

}  // namespace tessera::zero::detail
