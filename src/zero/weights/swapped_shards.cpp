#include "weights/shard_store.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/swap_transfers.hpp"
#include "transfer/comm_buffer.hpp"

namespace tessera::zero::detail {
namespace {

std::size_t in_pages(std::size_t bytes) { return round_up(bytes, memory::swap_alignment); }

/// Where the shard of each unit is: the first units in memory, the others in the file.
struct Placement {
  struct Place {
    bool is_in_memory = false;
    std::size_t begin = 0;  ///< first element in memory, or first byte in the file
    std::size_t swapped_index = 0;
  };
  std::vector<Place> places;  ///< places of each unit
  std::int64_t memory_numel = 0;
  std::size_t swapped_units = 0, file_bytes = 0;
  std::size_t largest_bytes = 0;  ///< largest size of a shard in the file
};

Placement place_units(PartitionPlan const& plan, WeightSwap const& swap, Dtype dtype) {
  Placement out;
  for (auto const& unit : plan.units()) {
    bool const stays = out.memory_numel + unit.shard_numel <= swap.memory_numel;
    if (stays) {
      out.places.push_back({true, static_cast<std::size_t>(out.memory_numel), 0});
      out.memory_numel += unit.shard_numel;
      continue;
    }
    TESSERA_VALIDATE(unit.shard_numel <= swap.buffer_numel, ConfigError, "buffers of ",
                     swap.buffer_numel, " elements for weights on a drive: a rank's ", "shard of ",
                     unit.name, " has ", unit.shard_numel,
                     "; use buffers of at least that size, or more ranks");
    std::size_t const bytes = in_pages(static_cast<std::size_t>(unit.shard_numel) * size_of(dtype));
    out.places.push_back({false, out.file_bytes, out.swapped_units++});
    out.file_bytes += bytes;
    out.largest_bytes = std::max(out.largest_bytes, bytes);
  }
  return out;
}

class SwappedShards final : public ShardStore {
 public:
  explicit SwappedShards(StoreContext const& context)
      : context_(context),
        swap_(*settings<ShardedWeights>(context.config).weight_swap),
        placement_(place_units(context.plan, swap_, context.config.dtype)),
        file_("weights", swap_.transfers.directories, placement_.file_bytes),
        transfers_(swap_.transfers) {
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
      if (!is_in_memory(u)) file_.label(place(u), context_.plan.unit(u).name);
    buffers_.resize(
        std::min(static_cast<std::size_t>(swap_.buffer_count), placement_.swapped_units));
    // collective: the same on all ranks, because the shards of a unit have one size
    try {
      memory_ = make_buffer("shards of swapped weights",
                            elements(buffers_.size() * placement_.largest_bytes));
    } catch (OutOfMemoryError const& error) {
      throw OutOfMemoryError(
          concat(error.what(), "; or lower the weights' buffer_count (", swap_.buffer_count, ")"));
    }
    in_memory_ = make_buffer("weights", placement_.memory_numel);
    TESSERA_EXPECT(buffers_.empty() ||
                   reinterpret_cast<std::uintptr_t>(memory_.at(0)) % memory::swap_alignment == 0);
  }

  Shard fetch(UnitIndex unit, memory::Event const& before) override {
    memory::TensorView const values(region(unit), dtype(), {context_.plan.unit(unit).shard_numel});
    if (is_in_memory(unit)) return {values, before, before};
    read(unit);
    auto events = buffer_of(unit).ready;
    events.push_back(before);
    auto const ready = memory::joined(std::move(events));
    return {values, ready, ready};
  }
  void fetched(UnitIndex unit, memory::Event const& gathered) override {
    if (is_in_memory(unit)) return;
    auto& buffer = buffer_of(unit);
    if (!buffer.is_written) buffer.free.clear();
    buffer.free.push_back(gathered);
  }

  /// A buffer that an earlier unit of the order waits in, or that holds a unit which is being
  /// updated, is not taken.
  bool read_ahead(UnitIndex unit) override {
    if (is_in_memory(unit)) return true;
    auto& buffer = buffer_of(unit);
    if (buffer.read_ahead_round == read_ahead_round_ || buffer.is_open) return false;
    buffer.read_ahead_round = read_ahead_round_;
    read(unit);
    return true;
  }
  void begin_read_ahead() override { ++read_ahead_round_; }
  std::size_t read_buffers() const override { return buffers_.size(); }
  void observe_reads(ReadObserver observer) override { observer_ = std::move(observer); }

  void* region(UnitIndex unit) const override {
    if (is_in_memory(unit)) return in_memory_.at(static_cast<std::int64_t>(place(unit)));
    return memory_.at(elements(buffer_index(unit) * placement_.largest_bytes));
  }

  void open_region(UnitIndex unit) override {
    if (!is_in_memory(unit)) {
      read(unit);
      buffer_of(unit).is_open = true;
      memory::order_before(context_.compute, buffer_of(unit).ready);
    }
    begin_read_ahead();
    for (UnitIndex u = unit; u < context_.plan.end_unit(); ++u)
      if (u != unit && !read_ahead(u)) break;
  }
  void close_unchanged(UnitIndex unit) override {
    if (is_in_memory(unit)) return;
    buffer_of(unit).is_open = false;
    buffer_of(unit).free = {context_.compute.record()};
  }
  /// Writes the changed shard to the file; it has no effect where the values have changed through
  /// region_outside_step().
  void close_changed(UnitIndex unit) override {
    if (is_in_memory(unit) || !buffer_of(unit).is_open) return;
    auto& buffer = buffer_of(unit);
    buffer.is_open = false;
    buffer.free = transfers_.write(file_, place(unit), region(unit), bytes_of(unit),
                                   {context_.compute.record()});
    buffer.is_written = true;
  }

  void finish_transfers() override {
    transfers_.wait();
    for (auto& buffer : buffers_) {
      buffer.holds = nobody;
      buffer.is_open = false;
    }
    is_mapped_ = true;
  }
  void* region_outside_step(UnitIndex unit) const override {
    if (is_in_memory(unit)) return region(unit);
    return static_cast<std::byte*>(file_.data()) + place(unit);
  }

  bool is_streamed() const override { return placement_.swapped_units > 0; }
  WeightReport report() const override {
    WeightReport out{.weight_bytes = in_memory_.bytes(),
                     .buffer_bytes = memory_.bytes(),
                     .swapped_bytes = file_.bytes(),
                     .swap = SwapUse{transfers_.method(), file_.is_direct()}};
    if (!is_for_device()) return out;
    for (auto const* buffer : {&memory_, &in_memory_}) {
      out.host.bytes += buffer->bytes();
      if (buffer->is_pinned()) out.host.pinned += buffer->bytes();
    }
    return out;
  }

 private:
  using Pending = memory::SwapTransfers::Pending;
  static constexpr std::int64_t nobody = -1;
  struct Staging {
    std::int64_t holds = nobody;  ///< the unit whose values it has or receives
    Pending ready;                ///< their read
    Pending free;                 ///< the last use
    bool is_open = false;         ///< for the update
    bool is_written = false;      ///< `free` has a write of its values
    int read_ahead_round = 0;     ///< that last claimed it
  };

  Dtype dtype() const { return context_.config.dtype; }
  bool is_for_device() const {
    return memory::memory_space_of(context_.compute) == memory::MemorySpace::device;
  }
  /// Where the model computes on the host, collectives read it. Else it is copied to the device.
  CommBuffer make_buffer(std::string const& name, std::int64_t numel) const {
    auto const purpose = memory::Purpose::weights;
    if (is_for_device())
      return CommBuffer::in_host_pages(name, purpose, dtype(), numel, swap_.space);
    return {context_.comm, name, purpose, dtype(), numel};
  }
  Placement::Place const& place_of(UnitIndex unit) const {
    return placement_.places[position(unit)];
  }
  bool is_in_memory(UnitIndex unit) const { return place_of(unit).is_in_memory; }
  std::size_t place(UnitIndex unit) const { return place_of(unit).begin; }
  std::size_t buffer_index(UnitIndex unit) const {
    return place_of(unit).swapped_index % buffers_.size();
  }
  Staging& buffer_of(UnitIndex unit) { return buffers_[buffer_index(unit)]; }
  std::int64_t elements(std::size_t bytes) const {
    return static_cast<std::int64_t>(bytes / size_of(dtype()));
  }
  std::size_t bytes_of(UnitIndex unit) const {
    return in_pages(static_cast<std::size_t>(context_.plan.unit(unit).shard_numel) *
                    size_of(dtype()));
  }

  void read(UnitIndex unit) {
    if (is_mapped_) file_.flush();
    is_mapped_ = false;
    auto& buffer = buffer_of(unit);
    auto const holder = static_cast<std::int64_t>(position(unit));
    if (buffer.holds == holder) return;
    TESSERA_EXPECT(!buffer.is_open);
    buffer.holds = holder;
    buffer.is_written = false;
    buffer.ready = transfers_.read(file_, place(unit), region(unit), bytes_of(unit), buffer.free);
    if (observer_) observer_(unit, memory::joined(buffer.free), memory::joined(buffer.ready));
  }

  StoreContext context_;
  WeightSwap swap_;
  Placement placement_;
  memory::SwapFile file_;
  CommBuffer memory_, in_memory_;
  std::vector<Staging> buffers_;
  int read_ahead_round_ = 0;
  ReadObserver observer_;
  bool is_mapped_ = true;            ///< the file may have changed through its mapping
  memory::SwapTransfers transfers_;  ///< ends before the buffers and the file
};

}  // namespace

std::unique_ptr<ShardStore> make_swapped_shards(StoreContext const& context) {
  return std::make_unique<SwappedShards>(context);
}

}  // namespace tessera::zero::detail
