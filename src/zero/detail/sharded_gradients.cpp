#include <optional>
#include <utility>

#include "detail/comm_buffer.hpp"
#include "detail/gradient_flow.hpp"
#include "detail/reducer.hpp"
#include "detail/unit_progress.hpp"

namespace tessera::zero::detail {
namespace {

class ShardedGradients final : public GradientFlow {
 public:
  ShardedGradients(StoreContext const& context, StageRules const& rules, std::vector<memory::UnitSpec> const& units)
      : context_(context),
        progress_(context.plan, units),
        shards_(context.comm, "gradients", memory::Purpose::gradients, rules.gradient_dtype, context.plan.partition_numel()),
        slots_("gradients of a unit", context.config.dtype, context.comm),
        reducer_(context),
        open_(units.size()) {}

  void begin_micro_step(MicroStep micro) override {
    if (!micro.first) progress_.expect_all_complete();
    micro_ = micro;
    progress_.begin_micro_step();
    reducer_.retire_all();
  }

  memory::GradientLease lease(int unit) override {
    bool const first = progress_.open(unit);
    auto const& layout = context_.plan.unit(unit);
    auto& slot = open_[static_cast<std::size_t>(unit)];
    if (first) {
      slot = slots_.take(layout.padded_numel);
      context_.compute.wait(slot->ready);
      progress_.clear_untied(context_.compute, unit, slot->data);
      progress_.clear_padding(context_.compute, unit, slot->data);
    }
    return {parameter_views(layout, slot->data.data(), slot->data.dtype()), !first};
  }

  void complete(int unit) override {
    progress_.complete(unit);
    auto const& layout = context_.plan.unit(unit);
    auto const lent = *std::exchange(open_[static_cast<std::size_t>(unit)], std::nullopt);
    reducer_.reduce_scatter(unit, lent.data, shards_.view(layout.partition_offset, layout.shard_numel), !micro_.first,
                            [this, lent](memory::Event done) { slots_.give_back(lent, std::move(done)); });
  }

  void finish() override {
    progress_.expect_all_complete();
    reducer_.wait_all();
  }
  void settle() override { reducer_.wait_all(); }

  void* region(int unit) const override { return shards_.at(context_.plan.unit(unit).partition_offset); }
  std::size_t gradient_bytes() const override { return shards_.bytes(); }
  std::size_t buffer_bytes() const override { return slots_.bytes() + reducer_.buffer_bytes(); }

 private:
  StoreContext context_;
  UnitProgress progress_;
  CommBuffer shards_;
  SlotPool slots_;
  Reducer reducer_;
  std::vector<std::optional<SlotPool::Slot>> open_;  ///< buffers of the units in work
  MicroStep micro_;
};

}  // namespace

std::unique_ptr<GradientFlow> make_sharded_gradients(StoreContext const& context, StageRules const& rules,
                                                     std::vector<memory::UnitSpec> const& units) {
  return std::make_unique<ShardedGradients>(context, rules, units);
}

}  // namespace tessera::zero::detail
