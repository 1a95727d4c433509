#include "weights/weight_stores.hpp"

#include <limits>
#include <utility>

#include "layout/unit_views.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/planning.hpp"
#include "transfer/buffer_pool.hpp"
#include "transfer/comm_buffer.hpp"
#include "weights/gather_source.hpp"
#include "weights/gather_window.hpp"
#include "weights/prefetch_control.hpp"
#include "weights/shard_store.hpp"

namespace tessera::zero::detail {
namespace {

/// A rank's shards of all units.
class ShardsInMemory final : public ShardStore {
 public:
  explicit ShardsInMemory(StoreContext const& context)
      : plan_(context.plan),
        shards_(context.comm, "weights", memory::Purpose::weights, context.config.dtype,
                context.plan.partition_numel()) {}

  Shard fetch(UnitIndex unit, memory::Event const& before) override {
    auto const& layout = plan_.unit(unit);
    return {shards_.view(layout.partition_offset.value(), layout.shard_numel), before, {}};
  }
  void fetched(UnitIndex, memory::Event const&) override {}
  bool read_ahead(UnitIndex) override { return false; }
  void* region(UnitIndex unit) const override {
    return shards_.at(plan_.unit(unit).partition_offset.value());
  }
  WeightReport report() const override { return {.weight_bytes = shards_.bytes()}; }

 private:
  PartitionPlan const& plan_;
  CommBuffer shards_;
};

std::unique_ptr<ShardStore> make_shard_store(StoreContext const& context) {
  bool const on_device = memory::memory_space_of(context.compute) == memory::MemorySpace::device;
  auto const& weights = settings<ShardedWeights>(context.config);
  if (!weights.weight_swap && !(weights.weight_offload && on_device))
    return std::make_unique<ShardsInMemory>(context);
  auto shards = weights.weight_swap ? make_swapped_shards(context) : make_host_shards(context);
  return on_device ? make_streamed_shards(context, std::move(shards)) : std::move(shards);
}

std::vector<std::int64_t> numel_of_units(PartitionPlan const& plan) {
  std::vector<std::int64_t> out;
  for (auto const& unit : plan.units()) out.push_back(unit.padded_numel);
  return out;
}

/// With contracts on, a read of what is not gathered shows.
void poison(memory::Queue& compute, memory::TensorView data) {
#ifdef TESSERA_ASSERTIONS
  if (data.dtype() != Dtype::uint8)  // codes have no NaN
    kernels::fill(compute, data, std::numeric_limits<float>::quiet_NaN());
#else
  (void)compute, (void)data;
#endif
}

/// Gathers units from the source into buffers when the window says so.
class GatheredWeights final : public WeightStore {
 public:
  explicit GatheredWeights(StoreContext const& context)
      : context_(context),
        shards_(make_shard_store(context)),
        source_(make_gather_source(context, *shards_)),
        window_(numel_of_units(context.plan),
                {settings<ShardedWeights>(context.config).prefetch_bucket_size,
                 settings<ShardedWeights>(context.config).max_live_parameters}),
        pool_("gathered weights", context.config.dtype, context.comm),
        gathered_(context.plan.units().size()),
        chooses_depth_(shards_->is_streamed() && !memory::BufferPlanning::active()),
        control_(context_.comm, context_.compute) {
    if (!chooses_depth_) return;
    shards_->observe_reads([this](UnitIndex unit, auto const& begin, auto const& end) {
      control_.read(unit, begin, end);
    });
  }

  void set_prefetch_order(std::vector<UnitIndex> acquisitions) override {
    if (chooses_depth_)
      control_.begin_pass(acquisitions,
                          {window_.earliest_gathers(acquisitions), shards_->read_buffers()});
    window_.begin_pass(std::move(acquisitions));
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
      if (window_.is_idle(u)) drop(u, context_.compute);
    prefetch();
  }

  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    window_.advance();
    if (!window_.is_gathered(unit)) gather(unit);
    bool const is_first_lease = window_.lease(unit);
    prefetch();
    auto const& buffer = gathered_[position(unit)].buffer;
    control_.ask();
    order_arrival_before(unit, compute);
    control_.receive();
    if (is_first_lease) source_->finish(unit, buffer);
    auto const views =
        parameter_views(context_.plan.unit(unit), buffer.data.data(), context_.config.dtype);
    return {{views.begin(), views.end()},
            [this, unit, &compute] { release(unit, compute); },
            {},
            version_.of(views.size())};
  }

  void* region(UnitIndex unit) const override { return shards_->region(unit); }
  void open_region(UnitIndex unit) override { shards_->open_region(unit); }
  void close_unchanged(UnitIndex unit) override { shards_->close_unchanged(unit); }
  void finish_transfers() override { shards_->finish_transfers(); }
  void* region_outside_step(UnitIndex unit) const override {
    return shards_->region_outside_step(unit);
  }
  void set_host_updates(UnitIndex end) override { shards_->set_host_updates(end); }

  void prepare_update() override {
    version_.change();
    window_.end_updates();
    control_.end_pass();
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
      TESSERA_VALIDATE(
          !window_.is_leased(u), InternalError,
          "unit is updated while it is leased; release leases before the optimizer step");
      order_arrival_before(u, context_.compute);
    }
  }

  void begin_updates() override {
    if (context_.config.overlap_comm && !shards_->is_streamed()) window_.begin_updates();
  }

  /// Gathered copies of the unit are stale now; the next pass gathers it again.
  void all_gather_updated(UnitIndex unit) override {
    shards_->close_changed(unit);
    source_->forget(unit);
    if (window_.is_gathered(unit)) drop(unit, context_.compute);
    pool_.delay_free(context_.compute.record());
    window_.set_updated(unit);
    if (window_.is_updating()) prefetch();
  }

  void synchronize() override {
    for (auto& gathered : gathered_)
      context_.comm.wait(std::exchange(gathered.arriving, comm::Pending()));
  }

  WeightReport report() const override {
    auto out = shards_->report();
    out.buffer_bytes += pool_.bytes();
    out.prefetch = control_.report();
    source_->add_bytes(out);
    return out;
  }

 private:
  struct Gathered {
    BufferPool::Entry buffer;
    comm::Pending arriving;  ///< last piece of the all-gather, until the compute queue waits for it
  };

  void gather(UnitIndex unit) {
    auto buffer = pool_.take(context_.plan.unit(unit).padded_numel);
    auto const started = source_->start(unit, buffer);
    if (chooses_depth_)
      control_.transfer(window_.next_acquisition(unit), started.begin, started.arriving.event());
    gathered_[position(unit)] = {std::move(buffer), started.arriving};
    window_.add(unit);
  }

  void prefetch() {
    for (UnitIndex const unit : window_.next_gathers(control_.depth())) gather(unit);
    shards_->begin_read_ahead();
    window_.look_ahead(control_.read_depth(), [&](UnitIndex unit, std::size_t) {
      bool const needs_shard = !window_.is_gathered(unit) && source_->reads_shard(unit);
      return !needs_shard || shards_->read_ahead(unit);
    });
  }

  void order_arrival_before(UnitIndex unit, memory::Queue& queue) {
    std::exchange(gathered_[position(unit)].arriving, comm::Pending()).order_before(queue);
  }

  void release(UnitIndex unit, memory::Queue& compute) {
    window_.release(unit);
    if (window_.is_idle(unit)) drop(unit, compute);
  }

  void drop(UnitIndex unit, memory::Queue& compute) {
    auto const& buffer = gathered_[position(unit)].buffer;
    order_arrival_before(unit, compute);
    source_->drop(unit);
    poison(compute, buffer.data);
    pool_.give_back(buffer, compute.record());
    window_.remove(unit);
  }

  StoreContext context_;
  std::unique_ptr<ShardStore> shards_;
  std::unique_ptr<GatherSource> source_;
  GatherWindow window_;
  BufferPool pool_;
  /// Gathered weights of each unit; valid while the window has it
  std::vector<Gathered> gathered_;
  WeightVersion version_;
  bool chooses_depth_;       ///< shards come from host memory of a device, or from a drive
  PrefetchControl control_;  ///< without limits where no depth is chosen
};

}  // namespace

std::unique_ptr<WeightStore> make_gathered_weights(StoreContext const& context) {
  return std::make_unique<GatheredWeights>(context);
}

}  // namespace tessera::zero::detail
