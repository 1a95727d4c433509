#include "weights/weight_stores.hpp"

#include <utility>

#include "layout/unit_views.hpp"
#include "transfer/comm_buffer.hpp"

namespace tessera::zero::detail {
namespace {

class ResidentWeights final : public WeightStore {
 public:
  explicit ResidentWeights(StoreContext const& context)
      : context_(context),
        flat_(context.comm, "weights", memory::Purpose::weights, context.config.dtype,
              context.plan.padded_count()),
        arriving_(context.plan.units().size()) {
    for (UnitIndex u = first_unit; u < context.plan.end_unit(); ++u) {
      auto const views = parameter_views(context.plan.unit(u),
                                         flat_.at(full_offset(context.plan, u)), flat_.dtype());
      views_.emplace_back(views.begin(), views.end());
    }
  }

  void set_prefetch_order(std::vector<UnitIndex>) override {}

  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    order_before(unit, compute);
    return {views_[position(unit)], {}};
  }

  void* region(UnitIndex unit) const override {
    return flat_.at(full_offset(context_.plan, unit) + context_.ownership.begin(unit).value());
  }

  void all_gather_updated(UnitIndex unit) override {
    auto const& layout = context_.plan.unit(unit);
    auto const unit_weights = flat_.view(full_offset(context_.plan, unit), layout.padded_numel);
    auto const after = context_.compute.record();
    for (auto const& blocks :
         cut_blocks(layout, context_.plan.ranks(), context_.config.allgather_bucket_size))
      arriving_[position(unit)] = context_.comm.all_gather(unit_weights, blocks, after);
  }

  void prepare_update() override {
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
      order_before(u, context_.compute);
  }

  void synchronize() override {
    for (auto& pending : arriving_) context_.comm.wait(std::exchange(pending, {}));
  }

  WeightReport report() const override { return {.weight_bytes = flat_.bytes()}; }

 private:
  /// All-gathers run in order, so a unit is complete with its last piece.
  void order_before(UnitIndex unit, memory::Queue& queue) {
    std::exchange(arriving_[position(unit)], {}).order_before(queue);
  }

  StoreContext context_;
  CommBuffer flat_;
  std::vector<std::vector<memory::ConstTensorView>> views_;
  std::vector<comm::Pending>
      arriving_;  ///< a unit's last all-gather, until somebody has waited for it
};

}  // namespace

std::unique_ptr<WeightStore> make_resident_weights(StoreContext const& context) {
  return std::make_unique<ResidentWeights>(context);
}

}  // namespace tessera::zero::detail
