#pragma once
/// Sums unit buffers of gradients over the ranks: cast to the wire dtype, cut into buckets, at most
/// one reduction under way while the next unit's gradients are computed.

#include <cstdint>
#include <deque>
#include <functional>

#include "detail/slot_pool.hpp"
#include "detail/weight_store.hpp"

namespace tessera::zero::detail {

class Reducer {
 public:
  explicit Reducer(StoreContext const& context);

  /// What to do with the buffer of a reduction once it may be touched again, given the point from
  /// which on.
  using Retire = std::function<void(memory::Event)>;

  /// out [shard] (+)= sum over ranks of this rank's region of @p whole [padded unit]; @p out may be
  /// that region.
  void reduce_scatter(int unit, memory::TensorView whole, memory::TensorView out, bool accumulate,
                      Retire retire = {});
  /// whole [padded unit] = sum over ranks.
  void all_reduce(int unit, memory::TensorView whole);

  /// Hands back all buffers; whoever takes one again waits for its reduction.
  void retire_all();
  /// Lets the compute queue's later work use what every reduction of the step gives, and hands back
  /// all buffers. Blocks the host where the host computes.
  void finish();
  /// Blocks the host until every reduction is done, and hands back all buffers.
  void wait_all();
  std::size_t buffer_bytes() const { return wire_.bytes(); }

 private:
  struct UnderWay {
    comm::Pending last;
    Retire retire;
  };
  void started(comm::Pending last, Retire retire);
  void retire_oldest();
  /// The buffer as it goes over the wire, and how it is handed back.
  SlotPool::Slot to_wire(memory::TensorView whole);

  StoreContext context_;
  SlotPool wire_;
  std::deque<UnderWay> under_way_;
  comm::Pending last_;  ///< reductions run in order: the last one stands for all before it
};

}  // namespace tessera::zero::detail
