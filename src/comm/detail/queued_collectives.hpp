#pragma once
/// Collectives over a transport: the caller checks the arguments, a worker thread runs the
/// operations in call order.

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "detail/checked_operations.hpp"
#include "detail/transport.hpp"

namespace tessera::comm::detail {

class QueuedCollectives final : public Collectives {
 public:
  QueuedCollectives(std::unique_ptr<Transport> transport, Deadline deadline);
  /// Waits a few seconds for operations in flight, then abandons them.
  ~QueuedCollectives() override;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override;
  Pending broadcast(memory::TensorView data, int root, memory::Event after) override;
  Pending all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) override;
  Pending reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) override;
  Pending reduce_scatter(memory::TensorView in, StridedShards shards, memory::TensorView out,
                         memory::WriteMode mode, memory::Event after) override;
  Pending all_gather(memory::TensorView inout, StridedShards shards, memory::Event after) override;
  Pending all_gather(memory::ConstTensorView in, memory::TensorView out, StridedShards shards,
                     memory::Event after) override;
  Pending scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                  memory::Event after) override;
  Pending gather(memory::ConstTensorView in, memory::TensorView out, int root,
                 memory::Event after) override;
  void wait(Pending const& pending) override;
  void barrier() override;

 private:
  Pending enqueue(Operation const& operation, memory::Event after,
                  std::function<void(Transport&)> body);
  void wait_for_input(memory::Event const& after, Operation const& operation) const;

  std::unique_ptr<Transport> transport_;
  Deadline deadline_;
  CheckedOperations operations_;
  std::atomic<std::uint64_t> progress_{0};  ///< counts the steps of the worker thread
  memory::Event last_;
  std::unique_ptr<memory::Queue> queue_;
};

}  // namespace tessera::comm::detail
