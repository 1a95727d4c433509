#include "transfer/shard_copies.hpp"

#include <algorithm>
#include <iterator>

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/planning.hpp"
#include "transfer/pinned_staging.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {
namespace {

/// The host converts values in its memory itself.
void convert(ShardCopy const& copy, ShardDirection direction) {
  auto const conversions = memory::make_inline_queue("conversions");
  memory::TensorView const host(copy.host, Dtype::fp32, {copy.shard.numel()});
  if (direction == ShardDirection::to_host)
    kernels::cast(*conversions, host, copy.shard);
  else
    kernels::cast(*conversions, copy.shard, host);
}

/// Copies through pinned memory; all copies have one dtype.
void copy_of_device(memory::Queue& queue, std::vector<ShardCopy> const& copies,
                    ShardDirection direction) {
  std::int64_t most = 0;
  for (auto const& copy : copies) most = std::max(most, copy.shard.numel());
  if (most == 0) return;
  PinnedStaging staging(queue, copies.front().shard.dtype(), most);
  if (memory::BufferPlanning::active()) {  // it is counted, but has no memory
    // as are the pieces of the state before, which its queue may not have released yet
    PinnedStaging const earlier(queue, copies.front().shard.dtype(), most);
    return;
  }
  for (auto const& copy : copies) {
    if (direction == ShardDirection::to_host)
      staging.read(copy.host, copy.shard);
    else
      staging.write(copy.shard, copy.host);
  }
  staging.finish();
}

}  // namespace

void copy_shards(memory::Queue& queue, std::vector<ShardCopy> const& copies,
                 ShardDirection direction) {
  std::vector<ShardCopy> of_device;
  std::copy_if(copies.begin(), copies.end(), std::back_inserter(of_device),
               [](ShardCopy const& copy) { return copy.space == memory::MemorySpace::device; });
  copy_of_device(queue, of_device, direction);
  if (memory::BufferPlanning::active()) return;
  queue.record().wait("copies of the optimizer state", compute_deadline);
  for (auto const& copy : copies)
    if (copy.space != memory::MemorySpace::device) convert(copy, direction);
}

}  // namespace tessera::zero::detail
