#pragma once
/// Turns the calls on one Collectives object into numbered operations and checks their arguments
/// before anything is sent.

#include <utility>

#include "base/operation.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::comm::detail {

/// Every function takes the next sequence number. It throws InternalError for wrong arguments, on
/// all ranks alike.
class CheckedOperations {
 public:
  explicit CheckedOperations(Group group) : group_(std::move(group)) {}

  Operation broadcast(memory::TensorView data, int root);
  Operation all_reduce(memory::TensorView data, ReduceOp op);
  Operation reduce(memory::TensorView data, ReduceOp op, int root);
  Operation reduce_scatter(memory::TensorView in, StridedShards shards, memory::TensorView out);
  Operation all_gather(memory::TensorView inout, StridedShards shards);
  Operation all_gather(memory::ConstTensorView in, memory::TensorView out, StridedShards shards);
  Operation scatter(memory::ConstTensorView in, memory::TensorView out, int root);
  Operation gather(memory::ConstTensorView in, memory::TensorView out, int root);
  Operation all_to_all(memory::ConstTensorView in, memory::TensorView out);
  Operation all_to_all(memory::ConstTensorView in, Parts const& send, memory::TensorView out,
                       Parts const& receive);
  Operation send(memory::ConstTensorView data, int to);
  Operation receive(memory::TensorView data, int from);
  Operation split();
  Operation allocate(std::size_t bytes);
  Operation barrier();

 private:
  Operation make(Kind kind, Dtype dtype, std::int64_t numel) const;
  Operation next(Kind kind, Dtype dtype, std::int64_t numel);
  Operation with_peer(Kind kind, memory::ConstTensorView data, int peer);
  Operation next(Kind kind, Dtype dtype, StridedShards shards);
  Operation next(Kind kind, Dtype dtype, std::int64_t numel, int root);
  void check_shards(Operation const& operation, std::int64_t numel) const;
  void check_reduce_target(Operation const& operation, memory::TensorView in,
                           memory::TensorView out) const;

  Group group_;
  std::uint64_t calls_ = 0, messages_ = 0;
};

}  // namespace tessera::comm::detail
