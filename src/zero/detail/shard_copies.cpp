#include "detail/shard_copies.hpp"

#include "detail/half_values.hpp"
#include "detail/weight_store.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

void copy_values(memory::Queue& queue, ShardCopy const& copy, ShardDirection direction) {
  if (direction == ShardDirection::to_host)
    memory::copy(queue, copy.host, copy.shard.data(), copy.shard.bytes());
  else
    memory::copy(queue, copy.shard.data(), copy.host, copy.shard.bytes());
}

void convert(memory::Queue& queue, ShardCopy const& copy, ShardDirection direction) {
  std::int64_t const numel = copy.shard.numel();
  HalfValues values(queue, copy.space, copy.shard.dtype(), numel);
  if (direction == ShardDirection::to_host)
    values.read(copy.host, copy.shard.data(), numel);
  else
    values.write(copy.shard.data(), copy.host, numel);
}

}  // namespace

void copy_shards(memory::Queue& queue, std::vector<ShardCopy> const& copies,
                 ShardDirection direction) {
  for (auto const& copy : copies) {
    if (copy.shard.dtype() == Dtype::fp32)
      copy_values(queue, copy, direction);
    else
      convert(queue, copy, direction);
  }
  queue.record().wait("copies of the optimizer state", compute_deadline);
}

}  // namespace tessera::zero::detail
