#include "optimizer/host_update.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::zero::detail {

HostUpdate::HostUpdate(StoreContext const& context, Offload offload, UpdateRegions& weights)
    : context_(context),
      offload_(std::move(offload)),
      weights_(weights),
      in_flight_(std::max<std::size_t>(
          1, std::min(static_cast<std::size_t>(offload_.buffer_count), offload_.tiles.size()))),
      return_(memory::make_stream_queue("weights to the device")),
      worker_(memory::make_worker_queue("optimizer")) {
  returning_ = memory::make_host_buffer(
      "weights that return to the device", memory::Purpose::workspace,
      in_flight_.size() * static_cast<std::size_t>(offload_.tiles.largest()) *
          size_of(context.config.dtype),
      offload_.space);
}

void* HostUpdate::weights_of(std::size_t tile) const {
  return static_cast<std::byte*>(returning_.data()) +
         (tile % in_flight_.size()) * static_cast<std::size_t>(offload_.tiles.largest()) *
             size_of(context_.config.dtype);
}

void HostUpdate::run(UnitIndex unit, Work const& work) {
  auto const& tiles = offload_.tiles;
  TESSERA_EXPECT(finished_ == tiles.first(unit), "units are updated in order");
  if (finished_ == 0) return_->wait(context_.compute.record());
  for (; finished_ < tiles.end(unit); ++finished_) {
    for (; started_ < std::min(tiles.size(), finished_ + in_flight_.size()); ++started_)
      start(started_, work);
    finish(finished_);
  }
  context_.compute.wait(return_->record());
  if (finished_ == tiles.size()) started_ = finished_ = 0;
}

void HostUpdate::start_all(Work const& work) {
  TESSERA_EXPECT(started_ == 0 && in_flight_.size() >= offload_.tiles.size());
  for (std::size_t tile = offload_.tiles.size(); tile > 0; --tile) start(tile - 1, work);
  started_ = offload_.tiles.size();
}

void HostUpdate::wait() const {
  worker_->record().wait("the update of the offloaded states", compute_deadline);
}

void HostUpdate::start(std::size_t tile, Work const& work) {
  worker_->wait(buffer_of(tile).returned);
  if (!memory::BufferPlanning::active()) worker_->submit([this, tile] { clear_padding(tile); });
  work(*worker_, tile);
  buffer_of(tile).computed = worker_->record();
}

/// A stream's wait for the worker would block here, too.
void HostUpdate::finish(std::size_t tile) {
  auto& buffer = buffer_of(tile);
  buffer.computed.wait("the update of the offloaded states", compute_deadline);
  auto const& t = offload_.tiles[tile];
  std::size_t const element = size_of(context_.config.dtype);
  auto* const to = static_cast<std::byte*>(weights_.region(t.unit)) +
                   static_cast<std::size_t>(t.begin) * element;
  auto const bytes = static_cast<std::size_t>(t.numel) * element;
  if (memory::on_device(to))
    memory::copy(*return_, to, weights_of(tile), bytes);
  else
    return_->submit([to, from = weights_of(tile), bytes] { std::memcpy(to, from, bytes); });
  buffer.returned = return_->record();
}

void HostUpdate::clear_padding(std::size_t index) const {
  auto const& tile = offload_.tiles[index];
  auto const first = context_.ownership.begin(tile.unit) + tile.begin, end = first + tile.numel;
  auto const clear = [&](UnitOffset from, UnitOffset to) {
    auto const size = static_cast<std::int64_t>(size_of(context_.config.dtype));
    if (from < to)
      std::memset(static_cast<std::byte*>(weights_of(index)) + (from - first) * size, 0,
                  static_cast<std::size_t>((to - from) * size));
  };
  auto padding = first;
  for (auto const& p : context_.plan.unit(tile.unit).parameters) {
    clear(padding, std::min(p.offset, end));
    padding = std::max(padding, std::min(p.end(), end));
  }
  clear(padding, end);
}

}  // namespace tessera::zero::detail
