#include "weights/shard_store.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "transfer/comm_buffer.hpp"

namespace tessera::zero::detail {
namespace {

std::int64_t largest_shard(PartitionPlan const& plan) {
  std::int64_t largest = 0;
  for (auto const& unit : plan.units()) largest = std::max(largest, unit.shard_numel);
  return largest;
}

class HostShards final : public ShardStore {
 public:
  explicit HostShards(StoreContext const& context)
      : plan_(context.plan),
        dtype_(context.config.dtype),
        shards_(memory::make_host_buffer(
            "weights in host memory", memory::Purpose::weights,
            static_cast<std::size_t>(plan_.partition_numel()) * size_of(dtype_),
            settings<ShardedWeights>(context.config).weight_offload->space)) {}

  Shard fetch(UnitIndex unit, memory::Event const& before) override {
    return {{region(unit), dtype_, {plan_.unit(unit).shard_numel}}, before, before};
  }
  void fetched(UnitIndex, memory::Event const&) override {}
  bool read_ahead(UnitIndex) override { return false; }
  void* region(UnitIndex unit) const override {
    return static_cast<std::byte*>(shards_.data()) +
           static_cast<std::size_t>(plan_.unit(unit).partition_offset.value()) * size_of(dtype_);
  }
  WeightReport report() const override {
    bool const is_pinned = shards_.space() == memory::MemorySpace::pinned;
    return {.weight_bytes = shards_.bytes(),
            .host = {shards_.bytes(), is_pinned ? shards_.bytes() : 0}};
  }

 private:
  PartitionPlan const& plan_;
  Dtype dtype_;
  memory::Buffer shards_;
};

class StreamedShards final : public ShardStore {
 public:
  StreamedShards(StoreContext const& context, std::unique_ptr<ShardStore> host)
      : context_(context),
        host_(std::move(host)),
        slot_numel_(largest_shard(context.plan)),
        memory_(context_.comm, "shards of streamed weights", memory::Purpose::communication,
                dtype(), slot_numel_ * static_cast<std::int64_t>(free_.size())),
        to_device_(memory::make_stream_queue("weights to the device")) {
    auto const use = host_->report().host;
    is_pageable_ = use.pinned < use.bytes;
  }
  /// Copies in flight use the buffers of both.
  ~StreamedShards() override {
    try {
      to_device_->record().wait_for(std::chrono::seconds(10));
    } catch (...) {
    }
  }

  void set_host_updates(UnitIndex end) override { host_updates_ = end; }

  /// Blocks the host until a drive has read the shard.
  Shard fetch(UnitIndex unit, memory::Event const& before) override {
    auto const shard = host_->fetch(unit, {});
    shard.ready.wait("weights from the drive", compute_deadline);
    if (is_pageable_)  // a copy may read it before the call returns
      free(unit).wait("updates of weights in host memory", compute_deadline);
    to_device_->wait(free(unit));
    to_device_->wait(before);
    auto const begin = to_device_->record();
    memory::copy(*to_device_, slot(unit), shard.values.data(), shard.values.bytes());
    auto const copied = to_device_->record();
    host_->fetched(unit, copied);
    return {{slot(unit), dtype(), {shard.values.numel()}}, copied, begin};
  }
  void fetched(UnitIndex unit, memory::Event const& gathered) override { free(unit) = gathered; }
  bool read_ahead(UnitIndex unit) override { return host_->read_ahead(unit); }
  void begin_read_ahead() override { host_->begin_read_ahead(); }
  std::size_t read_buffers() const override { return host_->read_buffers(); }
  void observe_reads(ReadObserver observer) override { host_->observe_reads(std::move(observer)); }

  void* region(UnitIndex unit) const override {
    return updates_on_host(unit) ? host_->region(unit) : slot(unit);
  }
  void open_region(UnitIndex unit) override {
    host_->open_region(unit);
    if (updates_on_host(unit)) return;
    context_.compute.wait(free(unit));
    memory::copy(context_.compute, slot(unit), host_->region(unit), bytes_of(unit));
    open_ = unit;
  }
  void close_unchanged(UnitIndex unit) override {
    host_->close_unchanged(unit);
    close(unit);
  }
  /// Closes a changed unit, and orders later copies after what the compute queue waits for: an
  /// update by the host.
  void close_changed(UnitIndex unit) override {
    if (open_ == unit)
      memory::copy(context_.compute, host_->region(unit), slot(unit), bytes_of(unit));
    host_->close_changed(unit);
    close(unit);
  }

  void finish_transfers() override { host_->finish_transfers(); }
  void* region_outside_step(UnitIndex unit) const override {
    return host_->region_outside_step(unit);
  }

  bool is_streamed() const override { return true; }
  WeightReport report() const override {
    auto out = host_->report();
    out.buffer_bytes += memory_.bytes();
    return out;
  }

 private:
  static constexpr UnitIndex none{-1};

  Dtype dtype() const { return context_.config.dtype; }

  bool updates_on_host(UnitIndex unit) const { return unit < host_updates_; }
  /// Neighbors in the order of a pass have different slots.
  std::size_t slot_index(UnitIndex unit) const { return position(unit) % free_.size(); }
  void* slot(UnitIndex unit) const {
    return memory_.at(static_cast<std::int64_t>(slot_index(unit)) * slot_numel_);
  }
  memory::Event& free(UnitIndex unit) { return free_[slot_index(unit)]; }
  std::size_t bytes_of(UnitIndex unit) const {
    return static_cast<std::size_t>(context_.plan.unit(unit).shard_numel) * size_of(dtype());
  }
  void close(UnitIndex unit) {
    open_ = none;
    free(unit) = context_.compute.record();
  }

  StoreContext context_;
  std::unique_ptr<ShardStore> host_;
  std::int64_t slot_numel_;
  std::array<memory::Event, 2> free_;  ///< the slots may be written again
  CommBuffer memory_;                  ///< the slots
  UnitIndex host_updates_ = first_unit;
  UnitIndex open_ = none;
  bool is_pageable_ = false;
  std::unique_ptr<memory::Queue> to_device_;
};

}  // namespace

std::unique_ptr<ShardStore> make_host_shards(StoreContext const& context) {
  return std::make_unique<HostShards>(context);
}

std::unique_ptr<ShardStore> make_streamed_shards(StoreContext const& context,
                                                 std::unique_ptr<ShardStore> host) {
  return std::make_unique<StreamedShards>(context, std::move(host));
}

}  // namespace tessera::zero::detail
