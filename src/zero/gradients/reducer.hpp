#pragma once
/// Sums unit buffers of gradients over the ranks: cast to the wire dtype and cut into buckets.
/// One reduction is in flight while the next unit's gradients are computed.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "gradients/gradient_flow.hpp"
#include "gradients/quantized_reduce.hpp"
#include "transfer/buffer_pool.hpp"

namespace tessera::zero::detail {

class Reducer {
 public:
  Reducer(StoreContext const& context, Averaging const& averaging);

  /// Called with the event after which the buffer of a reduction may be written again.
  using Retire = std::function<void(memory::Event)>;

  /// out [shard] (+)= `before` * sum over ranks of this rank's region of @p gradients [padded
  /// unit];
  /// @p out may be that region. A `before` other than 1 changes @p gradients when it has the wire
  /// dtype.
  /// From the second micro-step on it is added to @p out; in the last one @p out is then summed
  /// over the copies of the states.
  /// @param retire called when @p gradients may be written after an event
  /// @param reduced called with the event after which @p out has the sums
  void reduce_scatter(UnitIndex unit, memory::TensorView gradients, memory::TensorView out,
                      GradientFlow::MicroStep micro, Retire retire = {}, Retire reduced = {});
  /// data [n] = `before` * sum over ranks * `after`.
  /// @param ready when @p data may be read
  void all_reduce(memory::TensorView data, memory::Event ready, Retire reduced = {});

  /// Returns all buffers to the pool; the next take() of one waits for its reduction.
  void retire_all();
  /// Orders the compute queue's later work after every reduction of the step, and returns all
  /// buffers to the pool. Blocks the host when the compute queue runs on the host.
  void finish();
  /// Blocks the host until every reduction has completed, and returns all buffers to the pool.
  void wait_all();
  QuantizedReduce* quantized() { return quantized_.get(); }  ///< null: gradients travel as values
  std::size_t buffer_bytes() const {
    return wire_.bytes() + (across_ ? across_->buffer_bytes() : 0) +
           (quantized_ ? quantized_->bytes() : 0);
  }

 private:
  struct InFlight {
    comm::Pending last;
    Retire retire;
  };
  void started(comm::Pending last, Retire retire);
  void retire_oldest();
  /// A copy of @p gradients in the wire dtype.
  BufferPool::Entry to_wire(memory::TensorView gradients);

  StoreContext context_;
  float before_, after_;
  BufferPool wire_;
  std::deque<InFlight> in_flight_;
  comm::Pending last_;  ///< reductions run in order, so waiting for the last one waits for all
  std::unique_ptr<QuantizedReduce> quantized_;  ///< null: gradients travel as values
  std::unique_ptr<Reducer> across_;  ///< over the copies of the states; null: there is one
};

}  // namespace tessera::zero::detail
