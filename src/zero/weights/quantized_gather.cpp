#include "weights/quantized_gather.hpp"

#include <algorithm>

namespace tessera::zero::detail {

QuantizedGather::QuantizedGather(StoreContext const& context)
    : context_(context),
      format_{.bits = context.config.weight_code_bits},
      pool_("codes of weights", Dtype::uint8, context.comm) {}

kernels::CodeRegions QuantizedGather::regions(UnitIndex unit) const {
  return {format_, context_.plan.unit(unit).shard_numel, context_.plan.ranks()};
}

QuantizedGather::Codes QuantizedGather::start(UnitIndex unit, memory::TensorView shard,
                                              memory::Event const& ready) {
  auto const of_unit = regions(unit);
  std::int64_t const bytes = kernels::code_bytes(format_, of_unit.numel);
  Codes codes{pool_.take(of_unit.bytes()), {}};
  auto& compute = context_.compute;
  compute.wait(codes.buffer.ready);
  compute.wait(ready);
  kernels::encode_chunks(compute, codes.buffer.data.rows(context_.comm.rank() * bytes, bytes),
                         shard, {format_, of_unit.numel, 1});
  auto const after = compute.record();
  std::int64_t const most = std::max(PartitionPlan::default_alignment,
                                     context_.config.allgather_bucket_size / of_unit.count);
  for (std::int64_t at = 0; at < bytes; at += most)
    codes.arriving =
        context_.comm.all_gather(codes.buffer.data, {std::min(most, bytes - at), bytes, at}, after);
  return codes;
}

void QuantizedGather::decode(UnitIndex unit, BufferPool::Entry const& codes,
                             memory::TensorView out) {
  kernels::decode_chunks(context_.compute, out, codes.data, regions(unit));
  give_back(codes);
}

}  // namespace tessera::zero::detail
