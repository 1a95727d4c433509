#pragma once
/// Sums unit buffers of gradients over the ranks: cast to the wire dtype and cut into buckets.
/// At most one reduction is in flight while the next unit's gradients are computed.

#include <cstdint>
#include <deque>
#include <functional>

#include "detail/buffer_pool.hpp"
#include "detail/weight_store.hpp"

namespace tessera::zero::detail {

class Reducer {
 public:
  Reducer(StoreContext const& context, Averaging const& averaging);

  /// Called with the event after which the buffer of a reduction may be written again.
  using Retire = std::function<void(memory::Event)>;

  /// out [shard] (+)= `before` * sum over ranks of this rank's region of @p whole [padded unit];
  /// @p out may be that region. A `before` other than 1 changes @p whole when it has the wire
  /// dtype.
  /// @param retire called when @p whole may be written after an event
  /// @param reduced called with the event after which @p out has the sums
  void reduce_scatter(UnitIndex unit, memory::TensorView whole, memory::TensorView out,
                      bool accumulate, Retire retire = {}, Retire reduced = {});
  /// whole [padded unit] = `before` * sum over ranks * `after`.
  void all_reduce(UnitIndex unit, memory::TensorView whole);

  /// Returns all buffers to the pool; the next take() of one waits for its reduction.
  void retire_all();
  /// Orders the compute queue's later work after every reduction of the step, and returns all
  /// buffers to the pool. Blocks the host when the compute queue runs on the host.
  void finish();
  /// Blocks the host until every reduction has completed, and returns all buffers to the pool.
  void wait_all();
  std::size_t buffer_bytes() const { return wire_.bytes(); }

 private:
  struct InFlight {
    comm::Pending last;
    Retire retire;
  };
  void started(comm::Pending last, Retire retire);
  void retire_oldest();
  /// A copy of @p whole in the wire dtype.
  BufferPool::Entry to_wire(memory::TensorView whole);

  StoreContext context_;
  float before_, after_;
  BufferPool wire_;
  std::deque<InFlight> in_flight_;
  comm::Pending last_;  ///< reductions run in order, so waiting for the last one waits for all
};

}  // namespace tessera::zero::detail
