#pragma once
/// Collectives over a transport: checks the arguments in the caller, runs the operations on a
/// worker thread in call order.

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
  /// Lets what is under way finish for a few seconds, then gives it up.
  ~QueuedCollectives() override;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override;
  Pending broadcast(memory::TensorView data, int root, memory::Event after) override;
  Pending all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) override;
  Pending reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) override;
  Pending reduce_scatter(memory::TensorView in, Blocks blocks, memory::TensorView out,
                         bool accumulate, memory::Event after) override;
  Pending all_gather(memory::TensorView inout, Blocks blocks, memory::Event after) override;
  Pending all_gather(memory::ConstTensorView in, memory::TensorView out, Blocks blocks,
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
  void await(memory::Event const& after, Operation const& operation) const;

  std::unique_ptr<Transport> transport_;
  Deadline deadline_;
  CheckedOperations arguments_;
  std::atomic<std::uint64_t> progress_{0};  ///< steps of the lane: it stands still when this does
  memory::Event last_;
  std::unique_ptr<memory::Queue> queue_;
};

}  // namespace tessera::comm::detail
