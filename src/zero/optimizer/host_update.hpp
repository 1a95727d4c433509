#pragma once
/// The update of regions by the host while the model is on a device: tiles are updated by a worker
/// thread, which uses the cores of the rank, and their weights return to the device meanwhile.

#include <functional>
#include <memory>
#include <vector>

#include "layout/offload.hpp"
#include "tessera/memory/buffer.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class HostUpdate {
 public:
  HostUpdate(StoreContext const& context, Offload offload, UpdateRegions& weights);

  UnitIndex end() const { return offload_.end; }
  TileList const& tiles() const { return offload_.tiles; }
  /// The worker's queue. The states are updated and read there.
  memory::Queue& queue() const { return *worker_; }
  /// Where the work on a tile writes its weights.
  void* weights_of(std::size_t tile) const;

  /// Enqueues the work on a tile.
  using Work = std::function<void(memory::Queue& queue, std::size_t tile)>;
  /// Later work of the compute queue finds the weights of @p unit, as @p work has written them.
  /// Called for all units in order, with the same work: tiles of the units after this one are in
  /// flight when it returns. Blocks the host until the tiles of @p unit have been computed.
  void run(UnitIndex unit, Work const& work);
  /// Enqueues the work on all tiles, the last units first, and leaves their weights where the work
  /// writes them: run() with empty work returns them. Every tile has a buffer.
  void start_all(Work const& work);
  /// Blocks the host until the work that was started has ended.
  void wait() const;

  std::size_t bytes() const { return returning_.bytes(); }
  std::size_t pinned_bytes() const {
    return returning_.space() == memory::MemorySpace::pinned ? returning_.bytes() : 0;
  }

 private:
  /// A tile in one of the buffers.
  struct InFlight {
    memory::Event computed;
    memory::Event returned;  ///< the buffer may be written again
  };
  InFlight& buffer_of(std::size_t tile) { return in_flight_[tile % in_flight_.size()]; }
  void start(std::size_t tile, Work const& work);
  void finish(std::size_t tile);
  /// Optimizers write no weights of padding. Quantized weights share a scale with it.
  void clear_padding(std::size_t tile) const;

  StoreContext context_;
  Offload offload_;
  UpdateRegions& weights_;
  memory::Buffer returning_;  ///< weights of the tiles in flight
  std::vector<InFlight> in_flight_;
  std::size_t started_ = 0, finished_ = 0;
  std::unique_ptr<memory::Queue> return_;
  std::unique_ptr<memory::Queue> worker_;  ///< ends before the buffers
};

}  // namespace tessera::zero::detail
