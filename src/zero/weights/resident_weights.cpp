#include "weights/weight_stores.hpp"

#include <algorithm>
#include <utility>

#include "layout/unit_views.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "transfer/comm_buffer.hpp"

namespace tessera::zero::detail {
namespace {

/// Copies of units whose weights are operands of matrix products, in the dtype of these. A copy is
/// made for the first lease after an update, before the kernels of the pass, so that captured
/// graphs of blocks do not hold it.
class ProductCopies {
 public:
  explicit ProductCopies(StoreContext const& context) : dtype_(context.config.product_dtype) {
    auto const space = memory::memory_space_of(context.compute);
    if (!context.units || !rules_for(context.config, context.plan.ranks(), space).copies_weights)
      return;
    std::int64_t numel = 0;
    for (UnitIndex u = first_unit; u < context.plan.end_unit(); ++u) {
      auto const& parameters = (*context.units)[position(u)].parameters;
      bool const multiplies = std::ranges::any_of(parameters, &memory::ParameterSpec::in_products);
      units_.push_back(
          {.first = numel, .numel = multiplies ? context.plan.unit(u).padded_numel : 0});
      numel += units_.back().numel;
    }
    buffer_ = memory::Buffer("weights in the dtype of products", memory::Purpose::weights,
                             static_cast<std::size_t>(numel) * size_of(dtype_), space);
    for (UnitIndex u = first_unit; u < context.plan.end_unit(); ++u) {
      auto const& unit = units_[position(u)];
      auto const views =
          parameter_views(context.plan.unit(u), offset(buffer_.data(), dtype_, unit.first), dtype_);
      views_.emplace_back(views.begin(), views.end());
    }
  }

  /// Views of the copies of the parameters of @p unit, whose weights are @p weights for work that
  /// @p queue is given now. Empty: there is none.
  std::vector<memory::ConstTensorView> of(UnitIndex unit, memory::TensorView weights,
                                          memory::Queue& queue) {
    if (units_.empty() || units_[position(unit)].numel == 0) return {};
    auto& copy = units_[position(unit)];
    if (!std::exchange(copy.is_current, true)) {
      kernels::cast(
          queue,
          memory::TensorView(offset(buffer_.data(), dtype_, copy.first), dtype_, {copy.numel}),
          weights);
      copy.queue = &queue;
      copy.made = queue.record();
    }
    if (copy.queue != &queue) queue.wait(copy.made);
    return views_[position(unit)];
  }
  /// The weights change.
  void set_stale() {
    for (auto& unit : units_) unit.is_current = false;
  }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  struct Unit {
    std::int64_t first = 0, numel = 0;  ///< elements of the buffer; none: the unit has no copy
    bool is_current = false;
    memory::Queue const* queue = nullptr;  ///< which has made the copy
    memory::Event made{};
  };

  Dtype dtype_;
  memory::Buffer buffer_;
  std::vector<Unit> units_;  ///< empty: no unit has a copy
  std::vector<std::vector<memory::ConstTensorView>> views_;
};

class ResidentWeights final : public WeightStore {
 public:
  explicit ResidentWeights(StoreContext const& context)
      : context_(context),
        flat_(context.comm, "weights", memory::Purpose::weights, context.config.dtype,
              context.plan.padded_count()),
        copies_(context),
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
    auto const& views = views_[position(unit)];
    return {views, {}, copies_.of(unit, weights_of(unit), compute), version_.of(views.size())};
  }

  void* region(UnitIndex unit) const override {
    return flat_.at(full_offset(context_.plan, unit) + context_.ownership.begin(unit).value());
  }

  void all_gather_updated(UnitIndex unit) override {
    auto const& layout = context_.plan.unit(unit);
    auto const unit_weights = weights_of(unit);
    auto const after = context_.compute.record();
    for (auto const& blocks :
         cut_blocks(layout, context_.plan.ranks(), context_.config.allgather_bucket_size))
      arriving_[position(unit)] = context_.comm.all_gather(unit_weights, blocks, after);
  }

  void prepare_update() override {
    copies_.set_stale();
    version_.change();
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
      order_before(u, context_.compute);
  }

  void synchronize() override {
    for (auto& pending : arriving_) context_.comm.wait(std::exchange(pending, {}));
  }

  WeightReport report() const override {
    return {.weight_bytes = flat_.bytes(), .buffer_bytes = copies_.bytes()};
  }

 private:
  memory::TensorView weights_of(UnitIndex unit) const {
    return flat_.view(full_offset(context_.plan, unit), context_.plan.unit(unit).padded_numel);
  }
  /// All-gathers run in order, so a unit is complete with its last piece.
  void order_before(UnitIndex unit, memory::Queue& queue) {
    std::exchange(arriving_[position(unit)], {}).order_before(queue);
  }

  StoreContext context_;
  CommBuffer flat_;
  ProductCopies copies_;
  WeightVersion version_;
  std::vector<std::vector<memory::ConstTensorView>> views_;
  std::vector<comm::Pending>
      arriving_;  ///< a unit's last all-gather, until somebody has waited for it
};

}  // namespace

std::unique_ptr<WeightStore> make_resident_weights(StoreContext const& context) {
  return std::make_unique<ResidentWeights>(context);
}

}  // namespace tessera::zero::detail
