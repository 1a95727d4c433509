#include "weights/gather_source.hpp"

#include <utility>

#include "layout/unit_views.hpp"
#include "weights/quantized_gather.hpp"
#include "weights/secondary_shards.hpp"

namespace tessera::zero::detail {
namespace {

/// All-gathers of the shards as they are.
class AllGather final : public GatherSource {
 public:
  AllGather(StoreContext const& context, ShardStore& shards) : context_(context), shards_(shards) {}

  Gather start(UnitIndex unit, BufferPool::Entry const& out) override {
    auto const shard = shards_.fetch(unit, out.ready);
    comm::Pending last;
    for (auto const& blocks : cut_blocks(context_.plan.unit(unit), context_.plan.ranks(),
                                         context_.config.allgather_bucket_size))
      last = context_.comm.all_gather(shard.values, out.data, blocks, shard.ready);
    shards_.fetched(unit, last.event());
    return {last, shard.begin};
  }

 private:
  StoreContext context_;
  ShardStore& shards_;
};

}  // namespace

std::unique_ptr<GatherSource> make_gather_source(StoreContext const& context, ShardStore& shards) {
  std::unique_ptr<GatherSource> source;
  if (settings<ShardedWeights>(context.config).quantized_weight_bits > 0)
    source = std::make_unique<QuantizedGather>(context, shards);
  else
    source = std::make_unique<AllGather>(context, shards);
  if (!context.secondary) return source;
  return std::make_unique<SecondaryShards>(context, std::move(source));
}

}  // namespace tessera::zero::detail
