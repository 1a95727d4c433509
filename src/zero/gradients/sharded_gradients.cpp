#include "gradients/gradient_flow.hpp"

#include <utility>
#include <vector>

#include "gradients/gradient_staging.hpp"
#include "gradients/micro_step_sums.hpp"
#include "gradients/reducer.hpp"
#include "gradients/unit_progress.hpp"
#include "transfer/comm_buffer.hpp"

namespace tessera::zero::detail {
namespace {

class ShardedGradients final : public GradientFlow {
 public:
  ShardedGradients(StoreContext const& context, StageRules const& rules,
                   std::vector<memory::UnitSpec> const& units)
      : context_(context),
        progress_(context.plan, units),
        sums_(context.config),
        shards_(context.comm, "gradients", memory::Purpose::gradients, rules.gradient_dtype,
                context.plan.partition_numel() * sums_.copies()),
        staging_(context, progress_, units.size()),
        reducer_(context, rules.averaging) {}

  void begin_micro_step(MicroStep micro) override {
    if (!micro.first) progress_.expect_all_complete();
    micro_ = micro;
    progress_.begin_micro_step();
    reducer_.retire_all();
    sums_.begin(micro);
  }

  memory::GradientLease lease(UnitIndex unit) override {
    return staging_.lend(unit, progress_.open(unit));
  }

  void complete(UnitIndex unit) override {
    progress_.complete(unit);
    auto const lent = staging_.take(unit);
    if (micro_.is_empty) clear_to_identity(context_.compute, lent.data);
    reduce(unit, lent);
  }

  void finish() override {
    progress_.expect_all_complete();
    reducer_.finish();
  }
  void synchronize() override { reducer_.wait_all(); }

  void* region(UnitIndex unit) const override {
    return shards_.at(context_.plan.unit(unit).partition_offset.value());
  }
  std::size_t gradient_bytes() const override { return shards_.bytes(); }
  std::size_t buffer_bytes() const override { return staging_.bytes() + reducer_.buffer_bytes(); }
  QuantizedReduce* quantized() override { return reducer_.quantized(); }

 private:
  void reduce(UnitIndex unit, BufferPool::Entry const& lent) {
    MicroStep const to{
        .first = !sums_.adds(), .last = micro_.last, .index = micro_.index, .step = micro_.step};
    auto reduced = [this, unit, sums = sums_](memory::Event const& done) {
      if (!sums.merges()) return;
      context_.compute.wait(done);
      sums.merge(context_.compute, [&](int place) { return shard(unit, place); });
    };
    reducer_.reduce_scatter(
        unit, lent.data, shard(unit, sums_.copy_index()), to,
        [this, lent](memory::Event done) { staging_.give_back(lent, std::move(done)); },
        std::move(reduced));
  }
  memory::TensorView shard(UnitIndex unit, int place) const {
    auto const& layout = context_.plan.unit(unit);
    return shards_.view(context_.plan.partition_numel() * place + layout.partition_offset.value(),
                        layout.shard_numel);
  }

  StoreContext context_;
  UnitProgress progress_;
  MicroStepSums sums_;
  CommBuffer shards_;  ///< one partition after the other, one for each partial sum
  GradientStaging staging_;
  Reducer reducer_;
  MicroStep micro_;
};

}  // namespace

std::unique_ptr<GradientFlow> make_sharded_gradients(StoreContext const& context,
                                                     StageRules const& rules,
                                                     std::vector<memory::UnitSpec> const& units) {
  return std::make_unique<ShardedGradients>(context, rules, units);
}

}  // namespace tessera::zero::detail
