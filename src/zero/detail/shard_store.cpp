#include "detail/shard_store.hpp"

#include "detail/comm_buffer.hpp"
#include "detail/swapped_shards.hpp"

namespace tessera::zero::detail {
namespace {

class ShardsInMemory final : public ShardStore {
 public:
  explicit ShardsInMemory(StoreContext const& context)
      : plan_(context.plan),
        shards_(context.comm, "weights", memory::Purpose::weights, context.config.dtype,
                context.plan.partition_numel()) {}

  Shard fetch(UnitIndex unit, memory::Event const& before) override {
    auto const& layout = plan_.unit(unit);
    return {shards_.view(layout.partition_offset.value(), layout.shard_numel), before};
  }
  void fetched(UnitIndex, memory::Event const&) override {}
  bool read_ahead(UnitIndex) override { return false; }
  void* region(UnitIndex unit) const override {
    return shards_.at(plan_.unit(unit).partition_offset.value());
  }
  Dtype dtype() const override { return shards_.dtype(); }
  std::size_t weight_bytes() const override { return shards_.bytes(); }

 private:
  PartitionPlan const& plan_;
  CommBuffer shards_;
};

}  // namespace

std::unique_ptr<ShardStore> make_shard_store(StoreContext const& context) {
  if (context.config.weight_swap) return make_swapped_shards(context);
  return std::make_unique<ShardsInMemory>(context);
}

}  // namespace tessera::zero::detail
