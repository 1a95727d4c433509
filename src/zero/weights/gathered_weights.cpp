#include "weights/gathered_weights.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "layout/unit_views.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/planning.hpp"
#include "transfer/buffer_pool.hpp"
#include "transfer/comm_buffer.hpp"
#include "weights/prefetch_control.hpp"
#include "weights/quantized_gather.hpp"
#include "weights/secondary_shards.hpp"
#include "weights/shard_store.hpp"
#include "weights/streamed_shards.hpp"
#include "weights/swapped_shards.hpp"

namespace tessera::zero::detail {
namespace {

/// A released unit that is acquired again within this many acquisitions stays gathered, regardless
/// of the limits.
constexpr std::size_t imminent = 2;

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
  Dtype dtype() const override { return shards_.dtype(); }
  std::size_t weight_bytes() const override { return shards_.bytes(); }

 private:
  PartitionPlan const& plan_;
  CommBuffer shards_;
};

std::unique_ptr<ShardStore> make_shard_store(StoreContext const& context) {
  bool const on_device = memory::memory_space_of(context.compute) == memory::MemorySpace::device;
  auto const& config = context.config;
  if (!config.weight_swap && !(config.weight_offload && on_device))
    return std::make_unique<ShardsInMemory>(context);
  auto shards = config.weight_swap ? make_swapped_shards(context) : make_host_shards(context);
  return on_device ? make_streamed_shards(context, std::move(shards)) : std::move(shards);
}

class GatheredWeights final : public WeightStore {
 public:
  explicit GatheredWeights(StoreContext const& context)
      : context_(context),
        shards_(make_shard_store(context)),
        secondary_(context.secondary ? std::make_unique<SecondaryShards>(context) : nullptr),
        quantized_(context.config.weight_code_bits > 0 ? std::make_unique<QuantizedGather>(context)
                                                       : nullptr),
        pool_("gathered weights", context.config.dtype, context.comm),
        gathered_(context.plan.units().size()),
        seen_(context.plan.units().size(), 0),
        is_stale_(context.plan.units().size(), false) {
    if (!shards_->is_streamed() || memory::BufferPlanning::active()) return;
    control_.emplace(context_.comm, context_.compute);
    shards_->observe_reads([this](UnitIndex unit, auto const& begin, auto const& end) {
      control_->read(unit, begin, end);
    });
  }

  void set_prefetch_order(std::vector<UnitIndex> acquisitions) override {
    if (control_)
      control_->begin_pass(acquisitions, {earliest_gathers(acquisitions), shards_->read_buffers()});
    gathers_ahead_ = false;
    order_ = std::move(acquisitions);
    next_ = 0;
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
      if (state(u) && state(u)->leases == 0 && !stays(u)) drop(u, context_.compute);
    prefetch();
  }

  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    ++next_;
    if (!state(unit)) fetch(unit);
    ++state(unit)->leases;
    prefetch();
    auto& g = *state(unit);
    if (control_) control_->ask();
    std::exchange(g.arriving, {}).order_before(compute);
    if (control_) control_->receive();
    if (g.codes) {
      context_.compute.wait(g.buffer.ready);
      quantized_->decode(unit, *std::exchange(g.codes, std::nullopt), g.buffer.data);
    }
    if (secondary_ && !secondary_->has(unit)) secondary_->keep(unit, g.buffer.data);
    auto const views =
        parameter_views(context_.plan.unit(unit), g.buffer.data.data(), context_.config.dtype);
    return {{views.begin(), views.end()}, [this, unit, &compute] { release(unit, compute); }};
  }

  void* region(UnitIndex unit) const override { return shards_->region(unit); }
  void open_region(UnitIndex unit) override { shards_->open_region(unit); }
  void close_unchanged(UnitIndex unit) override { shards_->close_unchanged(unit); }
  void settle() override { shards_->settle(); }
  void* settled_region(UnitIndex unit) const override { return shards_->settled_region(unit); }

  /// Gathered copies of the unit are stale now; the next pass gathers it again.
  void all_gather_updated(UnitIndex unit) override {
    shards_->close_changed(unit);
    if (secondary_) secondary_->forget(unit);
    if (state(unit)) drop(unit, context_.compute);
    pool_.delay_free(context_.compute.record());
    is_stale_[position(unit)] = false;
    if (gathers_ahead_) prefetch();
  }

  void begin_updates() override {
    gathers_ahead_ = context_.config.overlap_comm && !shards_->is_streamed();
    if (!gathers_ahead_) return;
    is_stale_.assign(is_stale_.size(), true);
    next_ = 0;
  }

  void prepare_update() override {
    gathers_ahead_ = false;
    if (control_) control_->end_pass();
    for (auto& g : gathered_) {
      if (!g) continue;
      TESSERA_VALIDATE(
          g->leases == 0, InternalError,
          "unit is updated while it is leased; release leases before the optimizer step");
      std::exchange(g->arriving, {}).order_before(context_.compute);
    }
  }

  void synchronize() override {
    for (auto& g : gathered_)
      if (g) context_.comm.wait(std::exchange(g->arriving, {}));
  }

  std::size_t weight_bytes() const override {
    return shards_->weight_bytes() + (secondary_ ? secondary_->bytes() : 0);
  }
  std::size_t buffer_bytes() const override {
    return pool_.bytes() + shards_->buffer_bytes() + (quantized_ ? quantized_->bytes() : 0);
  }
  std::size_t swapped_bytes() const override { return shards_->swapped_bytes(); }
  HostUse host_use() const override { return shards_->host_use(); }
  std::optional<SwapUse> swap_use() const override { return shards_->swap_use(); }
  void set_host_updates(UnitIndex end) override { shards_->set_host_updates(end); }
  std::optional<PrefetchReport> prefetch_report() const override {
    return control_ ? control_->report() : std::nullopt;
  }

 private:
  struct Gathered {
    BufferPool::Entry buffer;
    comm::Pending arriving;  ///< last piece of the all-gather, until the compute queue waits for it
    int leases = 0;
    std::optional<BufferPool::Entry> codes = std::nullopt;  ///< that no lease has decoded yet
  };

  std::optional<Gathered>& state(UnitIndex unit) { return gathered_[position(unit)]; }
  std::int64_t numel(UnitIndex unit) const { return context_.plan.unit(unit).padded_numel; }

  void fetch(UnitIndex unit) {
    auto const& layout = context_.plan.unit(unit);
    Gathered g{pool_.take(layout.padded_numel), {}, 0};
    memory::Event begin = g.buffer.ready;
    if (secondary_ && secondary_->has(unit))
      g.arriving = secondary_->gather(unit, g.buffer.data, g.buffer.ready);
    else
      begin = gather_from_all(unit, g);
    if (control_) control_->transfer(next_acquisition(unit), begin, g.arriving.event());
    state(unit) = std::move(g);
    live_numel_ += layout.padded_numel;
  }

  /// With contracts on, a read of what is not gathered shows.
  static void poison(memory::Queue& compute, memory::TensorView data) {
#ifdef TESSERA_ASSERTIONS
    kernels::fill(compute, data, std::numeric_limits<float>::quiet_NaN());
#else
    (void)compute, (void)data;
#endif
  }

  /// The place in order_ of the acquisition that is at hand or comes next.
  std::size_t next_acquisition(UnitIndex unit) const {
    auto const from = order_.begin() + static_cast<std::ptrdiff_t>(next_ > 0 ? next_ - 1 : 0);
    return static_cast<std::size_t>(std::find(from, order_.end(), unit) - order_.begin());
  }

  /// What prefetch_bucket_size and max_live_parameters allow: MeasuredPass::earliest.
  std::vector<std::size_t> earliest_gathers(std::vector<UnitIndex> const& order) const {
    std::vector<std::size_t> out(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::int64_t ahead = numel(order[i]);
      std::size_t from = i;
      while (from > 0 && ahead + numel(order[from - 1]) <= context_.config.max_live_parameters &&
             (from == i || ahead <= context_.config.prefetch_bucket_size))
        ahead += numel(order[--from]);
      out[i] = from;
    }
    return out;
  }

  /// @return the event after which the shard is transferred
  memory::Event gather_from_all(UnitIndex unit, Gathered& g) {
    auto const shard = shards_->fetch(unit, g.buffer.ready);
    if (quantized_) {
      auto const codes = quantized_->start(unit, shard.values, shard.ready);
      g.codes = codes.buffer;
      g.arriving = codes.arriving;
      shards_->fetched(unit, context_.compute.record());
      return shard.begin;
    }
    for (auto const& blocks : cut_blocks(context_.plan.unit(unit), context_.plan.ranks(),
                                         context_.config.allgather_bucket_size))
      g.arriving = context_.comm.all_gather(shard.values, g.buffer.data, blocks, shard.ready);
    shards_->fetched(unit, g.arriving.event());
    return shard.begin;
  }

  /// Calls visit(unit, acquisitions until then) once for each unit of the coming acquisitions,
  /// until it returns false.
  template <class Visit>
  void look_ahead(Visit visit) {
    ++glance_;
    for (std::size_t k = next_; k < order_.size(); ++k) {
      int& last_glance = seen_[position(order_[k])];
      if (std::exchange(last_glance, glance_) == glance_) continue;
      if (!visit(order_[k], k - next_)) return;
    }
  }

  /// Prefetches the following units up to prefetch_bucket_size and the chosen depth, always at
  /// least one, while all gathered units fit max_live_parameters.
  void prefetch() {
    std::int64_t ahead = 0;
    look_ahead([&](UnitIndex unit, std::size_t distance) {
      if (state(unit) && state(unit)->leases > 0) return true;
      if (is_stale_[position(unit)]) return false;
      if (control_ && distance >= control_->depth()) return false;
      if (ahead > 0 && ahead + numel(unit) > context_.config.prefetch_bucket_size) return false;
      if (!state(unit) && live_numel_ + numel(unit) > context_.config.max_live_parameters)
        return false;
      if (!state(unit)) fetch(unit);
      ahead += numel(unit);
      return true;
    });
    shards_->begin_read_ahead();
    look_ahead([&](UnitIndex unit, std::size_t distance) {
      if (control_ && distance >= control_->read_depth()) return false;
      return has_source(unit) || shards_->read_ahead(unit);
    });
  }

  /// Without this rank's primary shard.
  bool has_source(UnitIndex unit) { return state(unit) || (secondary_ && secondary_->has(unit)); }

  /// Whether a unit without leases stays gathered: it is acquired again within two acquisitions, or
  /// would be prefetched anyway.
  bool stays(UnitIndex unit) {
    bool found = false;
    std::int64_t ahead = 0;
    look_ahead([&](UnitIndex coming, std::size_t distance) {
      ahead += numel(coming);
      bool const affordable = ahead <= context_.config.prefetch_bucket_size &&
                              live_numel_ <= context_.config.max_live_parameters;
      if (!affordable && distance >= imminent) return false;
      found = coming == unit;
      return !found;
    });
    return found;
  }

  void release(UnitIndex unit, memory::Queue& compute) {
    auto& g = state(unit);
    TESSERA_EXPECT(g && g->leases > 0, "unit ", unit, " released without a lease");
    if (--g->leases == 0 && !stays(unit)) drop(unit, compute);
  }

  void drop(UnitIndex unit, memory::Queue& compute) {
    auto& g = *state(unit);
    std::exchange(g.arriving, {}).order_before(compute);
    if (g.codes) quantized_->give_back(*g.codes);
    poison(compute, g.buffer.data);
    pool_.give_back(g.buffer, compute.record());
    live_numel_ -= numel(unit);
    state(unit).reset();
  }

  StoreContext context_;
  std::unique_ptr<ShardStore> shards_;
  std::unique_ptr<SecondaryShards> secondary_;
  std::unique_ptr<QuantizedGather> quantized_;  ///< null: weights travel as values
  BufferPool pool_;
  std::vector<std::optional<Gathered>> gathered_;
  std::vector<UnitIndex> order_;  ///< of the pass at hand, or of the last one and the next
  std::size_t next_ = 0;          ///< the next acquisition's place in order_
  std::int64_t live_numel_ = 0;
  std::vector<int> seen_;  ///< the glance that last met a unit
  int glance_ = 0;
  std::vector<bool> is_stale_;              ///< the step at hand has yet to update the unit
  bool gathers_ahead_ = false;              ///< for the next pass, while units are updated
  std::optional<PrefetchControl> control_;  ///< of shards in host memory of a device, or on a drive
};

}  // namespace

std::unique_ptr<WeightStore> make_gathered_weights(StoreContext const& context) {
  return std::make_unique<GatheredWeights>(context);
}

}  // namespace tessera::zero::detail
