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
#include "weights/coded_gather.hpp"
#include "weights/lookup_rows.hpp"
#include "weights/prefetch_control.hpp"
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
  GatheredWeights(StoreContext const& context, StageRules const& rules)
      : context_(context),
        shards_(make_shard_store(context)),
        secondary_(context.secondary ? std::make_unique<SecondaryShards>(context) : nullptr),
        coded_(context.config.weight_code_bits > 0 ? std::make_unique<CodedGather>(context)
                                                   : nullptr),
        pool_("gathered weights", context.config.dtype, context.comm),
        gathered_(context.plan.units().size()),
        seen_(context.plan.units().size(), 0),
        is_stale_(context.plan.units().size(), false) {
    if (rules.lookup_rows) lookup_.emplace(context);
    if (!shards_->is_streamed() || memory::BufferPlanning::active()) return;
    control_.emplace(context_.comm, context_.compute);
    shards_->observe_reads([this](UnitIndex unit, auto const& begin, auto const& end) {
      control_->read(unit, begin, end);
    });
  }

  void announce_lookup(UnitIndex unit, std::size_t parameter, memory::RowList rows) override {
    if (lookup_) announced_.emplace(unit, parameter, rows);
  }
  void announce_next_lookup(UnitIndex unit, std::size_t parameter, memory::RowList rows) override {
    if (lookup_) announced_next_.emplace(unit, parameter, rows);
  }
  std::optional<std::int64_t> lookup_rows() const override {
    return lookup_ ? lookup_->count() : std::nullopt;
  }

  void set_prefetch_order(std::vector<UnitIndex> acquisitions) override {
    if (control_)
      control_->begin_pass(acquisitions, {earliest_gathers(acquisitions), shards_->read_buffers()});
    order_of_pass_ = acquisitions;
    gathers_ahead_ = false;
    bool const has_rows = has_rows_of(acquisitions),
               looks_up = has_rows || begin_lookup(acquisitions);
    set_order(std::move(acquisitions), looks_up);
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
      if (state(u) && state(u)->leases == 0 && !stays(u)) drop(u, context_.compute);
    if (looks_up && !has_rows) gather_rows();
    prefetch();
    count_next_rows();
  }

  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    if (looked_up_) return lease_rows(unit, compute);
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
      coded_->decode(unit, *std::exchange(g.codes, std::nullopt), g.buffer.data);
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
    if (!gathers_ahead_) return;
    if (looks_up_next_ && unit == lookup_->unit()) gather_rows();
    prefetch();
  }

  void expect_pass() override { expects_pass_ = context_.config.overlap_comm; }

  bool begin_updates() override {
    bool const expects_pass = std::exchange(expects_pass_, false);
    if (!expects_pass || shards_->is_streamed() || order_of_pass_.empty()) return false;
    gathers_ahead_ = true;
    is_stale_.assign(is_stale_.size(), true);
    looks_up_next_ = lookup_ && lookup_->begin(order_of_pass_.front());
    set_order(order_of_pass_, looks_up_next_);
    return looks_up_next_;
  }

  void prepare_update() override {
    gathers_ahead_ = false;
    forget_rows();
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
    if (lookup_) lookup_->wait();
  }

  std::size_t weight_bytes() const override {
    return shards_->weight_bytes() + (secondary_ ? secondary_->bytes() : 0);
  }
  std::size_t buffer_bytes() const override {
    return pool_.bytes() + shards_->buffer_bytes() + (coded_ ? coded_->bytes() : 0) +
           (lookup_ ? lookup_->bytes() : 0);
  }
  std::size_t swapped_bytes() const override { return shards_->swapped_bytes(); }
  HostUse host_use() const override { return shards_->host_use(); }
  std::optional<SwapUse> swap_use() const override { return shards_->swap_use(); }
  void set_host_updates(UnitIndex end) override { shards_->set_host_updates(end); }
  std::optional<PrefetchReport> prefetch_report() const override {
    return control_ ? control_->report() : std::nullopt;
  }

 private:
  /// Of a pass that begins after the call that has named them.
  struct Announced {
    Announced(UnitIndex of, std::size_t its_parameter, memory::RowList list)
        : unit(of), parameter(its_parameter), count(list.count), is_planned(!list.rows) {
      if (list.rows) numbers.assign(list.rows, list.rows + list.count);
    }
    memory::RowList rows() const { return {is_planned ? nullptr : numbers.data(), count}; }

    UnitIndex unit;
    std::size_t parameter;
    std::vector<std::int32_t> numbers;
    std::int64_t count;
    bool is_planned;
  };
  /// A unit of which only the rows of a lookup are gathered, in a buffer of the complete one.
  struct LookedUp {
    UnitIndex unit;
    BufferPool::Entry buffer;
  };
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

  /// @param looks_up the first acquisition is that of rows, which are apart
  void set_order(std::vector<UnitIndex> order, bool looks_up) {
    if (looks_up) order.erase(order.begin());
    order_ = std::move(order);
    next_ = 0;
  }

  /// Whether the first acquisition reads announced rows, few enough, of a unit that would not stay
  /// gathered until it is needed again. Then the rows replace a complete gather.
  bool begin_lookup(std::vector<UnitIndex> const& order) {
    auto const announced = std::exchange(announced_, std::nullopt);
    if (!announced || state(announced->unit) || !looks_up(order, *announced)) return false;
    lookup_->announce(announced->unit, announced->parameter, announced->rows());
    return lookup_->begin(announced->unit);
  }
  bool looks_up(std::vector<UnitIndex> const& order, Announced const& announced) const {
    return !order.empty() && order.front() == announced.unit && !stays_gathered(order);
  }
  /// The next step's first pass is expected to have the order of this one, its step's last.
  void count_next_rows() {
    auto const next = std::exchange(announced_next_, std::nullopt);
    if (next && looks_up(order_of_pass_, *next))
      lookup_->announce(next->unit, next->parameter, next->rows());
  }
  /// Whether the rows of the pass's lookup have been gathered while units were updated. Those of
  /// another pass than the one that was expected are forgotten.
  bool has_rows_of(std::vector<UnitIndex> const& order) {
    if (!looked_up_) return false;
    if (!announced_ || order.empty() || order.front() != looked_up_->unit) {
      forget_rows();
      return false;
    }
    auto const announced = *std::exchange(announced_, std::nullopt);
    TESSERA_VALIDATE(lookup_->covers(announced.unit, announced.parameter, announced.rows()),
                     InternalError,
                     "the pass looks up other rows than announce_next_lookup() has said, and at "
                     "stage 3 the other ranks have sent only those; announce the pass that comes");
    return true;
  }
  void forget_rows() {
    if (!looked_up_) return;
    pool_.give_back(looked_up_->buffer, context_.compute.record());
    live_numel_ -= numel(looked_up_->unit);
    looked_up_.reset();
  }
  /// Whether the first unit of an order is soon needed again, or with all units in between fits
  /// the limits.
  bool stays_gathered(std::vector<UnitIndex> const& order) const {
    auto const again = std::find(order.begin() + 1, order.end(), order.front());
    if (again == order.end()) return false;
    std::int64_t ahead = numel(order.front());
    std::for_each(order.begin() + 1, again, [&](UnitIndex unit) { ahead += numel(unit); });
    auto const& c = context_.config;
    return again - order.begin() <= static_cast<std::ptrdiff_t>(imminent) ||
           ahead <= std::min(c.prefetch_bucket_size, c.max_live_parameters);
  }
  void gather_rows() {
    auto const unit = lookup_->unit();
    looked_up_.emplace(LookedUp{unit, pool_.take(numel(unit))});
    live_numel_ += numel(unit);
    auto const shard = shards_->fetch(unit, looked_up_->buffer.ready);
    lookup_->gather(shard.values, shard.ready);
  }
  memory::WeightLease lease_rows(UnitIndex unit, memory::Queue& compute) {
    TESSERA_EXPECT(unit == looked_up_->unit);
    auto const buffer = std::exchange(looked_up_, std::nullopt)->buffer;
    compute.wait(buffer.ready);
    poison(compute, buffer.data);
    lookup_->write(buffer.data);
    auto const views =
        parameter_views(context_.plan.unit(unit), buffer.data.data(), context_.config.dtype);
    return {{views.begin(), views.end()}, [this, buffer, unit, &compute] {
              pool_.give_back(buffer, compute.record());
              live_numel_ -= numel(unit);
            }};
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
    if (coded_) {
      auto const codes = coded_->start(unit, shard.values, shard.ready);
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

  /// Whether prefetch_bucket_size holds a unit behind @p ahead elements. One that would take most
  /// of it, as an embedding for the head, needs no place there where it has a buffer in any case:
  /// else its gather would begin too late for its length.
  bool fits_bucket(UnitIndex unit, std::int64_t ahead, bool has_buffer) const {
    auto const bucket = context_.config.prefetch_bucket_size;
    return ahead + numel(unit) <= bucket ||
           (has_buffer && ahead <= bucket && 2 * numel(unit) > bucket);
  }

  /// Prefetches the following units up to prefetch_bucket_size and the chosen depth, always at
  /// least one, while all gathered units fit max_live_parameters.
  void prefetch() {
    std::int64_t ahead = 0;
    look_ahead([&](UnitIndex unit, std::size_t distance) {
      if (state(unit) && state(unit)->leases > 0) return true;
      if (is_stale_[position(unit)]) return false;
      if (control_ && distance >= control_->depth()) return false;
      if (ahead > 0 && !fits_bucket(unit, ahead, state(unit) || pool_.has_free(numel(unit))))
        return false;
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
      bool const affordable = fits_bucket(coming, ahead, state(coming).has_value()) &&
                              live_numel_ <= context_.config.max_live_parameters;
      ahead += numel(coming);
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
    if (g.codes) coded_->give_back(*g.codes);
    poison(compute, g.buffer.data);
    pool_.give_back(g.buffer, compute.record());
    live_numel_ -= numel(unit);
    state(unit).reset();
  }

  StoreContext context_;
  std::unique_ptr<ShardStore> shards_;
  std::unique_ptr<SecondaryShards> secondary_;
  std::unique_ptr<CodedGather> coded_;  ///< null: weights travel as values
  BufferPool pool_;
  std::vector<std::optional<Gathered>> gathered_;
  std::vector<UnitIndex> order_of_pass_;  ///< all acquisitions of the last pass that has begun
  std::vector<UnitIndex> order_;          ///< prefetch order of the pass at hand or expected
  std::size_t next_ = 0;                  ///< the next one's place in order_
  std::int64_t live_numel_ = 0;
  std::optional<LookupRows> lookup_;
  std::optional<Announced> announced_;       ///< of the pass that begins next
  std::optional<Announced> announced_next_;  ///< of the next step's first pass
  std::optional<LookedUp> looked_up_;        ///< until it is acquired
  std::vector<int> seen_;                    ///< the glance that last met a unit
  int glance_ = 0;
  std::vector<bool> is_stale_;              ///< the step at hand has yet to update the unit
  bool expects_pass_ = false;               ///< in the order of the last one, after the next update
  bool gathers_ahead_ = false;              ///< for that pass, while units are updated
  bool looks_up_next_ = false;              ///< that pass begins with a lookup of rows
  std::optional<PrefetchControl> control_;  ///< of shards in host memory of a device, or on a drive
};

}  // namespace

std::unique_ptr<WeightStore> make_gathered_weights(StoreContext const& context,
                                                   StageRules const& rules) {
  return std::make_unique<GatheredWeights>(context, rules);
}

}  // namespace tessera::zero::detail
