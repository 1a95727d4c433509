#include "weights/resident_weights.hpp"

#include <utility>

#include "layout/unit_views.hpp"
#include "transfer/comm_buffer.hpp"
#include "weights/lookup_rows.hpp"

namespace tessera::zero::detail {
namespace {

class ResidentWeights final : public WeightStore {
 public:
  ResidentWeights(StoreContext const& context, StageRules const& rules)
      : context_(context),
        flat_(context.comm, "weights", memory::Purpose::weights, context.config.dtype,
              context.plan.padded_count()),
        arriving_(context.plan.units().size()) {
    if (rules.lookup_rows) lookup_.emplace(context);
    for (UnitIndex u = first_unit; u < context.plan.end_unit(); ++u) {
      auto const views = parameter_views(context.plan.unit(u),
                                         flat_.at(full_offset(context.plan, u)), flat_.dtype());
      views_.emplace_back(views.begin(), views.end());
    }
  }

  void set_prefetch_order(std::vector<UnitIndex>) override {}

  void announce_lookup(UnitIndex unit, std::size_t parameter, memory::RowList rows) override {
    reads_rows_ = lookup_ && lookup_->covers(unit, parameter, rows);
  }
  void announce_next_lookup(UnitIndex unit, std::size_t parameter, memory::RowList rows) override {
    if (lookup_) lookup_->announce(unit, parameter, rows);
  }
  bool begin_updates() override { return lookup_.has_value(); }
  std::optional<std::int64_t> lookup_rows() const override {
    return lookup_ ? lookup_->count() : std::nullopt;
  }

  /// A unit whose rows came first is gathered completely after their lookup, which must not read
  /// what the gather writes: at the next acquisition, behind the gathers of all other units. Ranks
  /// whose tokens are others than announced gather in the same place, and wait for it.
  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    bool const reads_rows = std::exchange(reads_rows_, false) && unit == incomplete_;
    if (!reads_rows) complete();
    TESSERA_VALIDATE(reads_rows || unit != incomplete_, InternalError, "unit ",
                     context_.plan.unit(unit).name,
                     " is acquired while a lookup of some of its rows is leased");
    order_before(unit, compute);
    if (!reads_rows) return {views_[position(unit)], {}};
    lookup_->write(whole(unit));
    ++lookups_;
    return {views_[position(unit)], [this] { --lookups_; }};
  }

  void* region(UnitIndex unit) const override {
    return flat_.at(full_offset(context_.plan, unit) + context_.ownership.begin(unit).value());
  }

  void all_gather_updated(UnitIndex unit) override {
    if (incomplete_ == unit) incomplete_.reset();
    if (!lookup_ || !lookup_->begin(unit)) return gather(unit);
    auto const& layout = context_.plan.unit(unit);
    lookup_->gather(
        part(whole(unit), context_.ownership.shard_begin(unit).value(), layout.shard_numel),
        context_.compute.record());
    incomplete_ = unit;
  }

  void prepare_update() override {
    if (lookup_) lookup_->order_before_compute();
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
      order_before(u, context_.compute);
  }

  void synchronize() override {
    for (auto& pending : arriving_) context_.comm.wait(std::exchange(pending, {}));
    if (lookup_) lookup_->wait();
  }

  std::size_t weight_bytes() const override { return flat_.bytes(); }
  std::size_t buffer_bytes() const override { return lookup_ ? lookup_->bytes() : 0; }

 private:
  memory::TensorView whole(UnitIndex unit) const {
    return flat_.view(full_offset(context_.plan, unit), context_.plan.unit(unit).padded_numel);
  }
  void gather(UnitIndex unit) {
    auto const after = context_.compute.record();
    for (auto const& blocks : cut_blocks(context_.plan.unit(unit), context_.plan.ranks(),
                                         context_.config.allgather_bucket_size))
      arriving_[position(unit)] = context_.comm.all_gather(whole(unit), blocks, after);
  }
  /// Starts the complete gather of the unit that has only its rows, unless it is leased. The same
  /// call does so on every rank.
  void complete() {
    if (incomplete_ && lookups_ == 0) gather(*std::exchange(incomplete_, std::nullopt));
  }
  /// All-gathers run in order, so a unit's last piece stands for all.
  void order_before(UnitIndex unit, memory::Queue& queue) {
    std::exchange(arriving_[position(unit)], {}).order_before(queue);
  }

  StoreContext context_;
  CommBuffer flat_;
  std::vector<std::vector<memory::ConstTensorView>> views_;
  std::vector<comm::Pending>
      arriving_;  ///< a unit's last all-gather, until somebody has waited for it
  std::optional<LookupRows> lookup_;
  std::optional<UnitIndex> incomplete_;  ///< the unit of which only the rows are gathered
  bool reads_rows_ = false;              ///< the next acquisition reads no more than those
  int lookups_ = 0;                      ///< leases of them
};

}  // namespace

std::unique_ptr<WeightStore> make_resident_weights(StoreContext const& context,
                                                   StageRules const& rules) {
  return std::make_unique<ResidentWeights>(context, rules);
}

}  // namespace tessera::zero::detail
