#pragma once
/// The calls of one Collectives object as operations: numbered, and their arguments checked before
/// anything is sent.

#include "detail/operation.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::comm::detail {

/// Every function takes the next number, also when it throws InternalError for its arguments: all
/// ranks throw alike.
class CheckedOperations {
 public:
  CheckedOperations(int rank, int size) : rank_(rank), size_(size) {}

  Operation broadcast(memory::TensorView data, int root);
  Operation all_reduce(memory::TensorView data, ReduceOp op);
  Operation reduce(memory::TensorView data, ReduceOp op, int root);
  Operation reduce_scatter(memory::TensorView in, Blocks blocks, memory::TensorView out);
  Operation all_gather(memory::TensorView inout, Blocks blocks);
  Operation all_gather(memory::ConstTensorView in, memory::TensorView out, Blocks blocks);
  Operation scatter(memory::ConstTensorView in, memory::TensorView out, int root);
  Operation gather(memory::ConstTensorView in, memory::TensorView out, int root);
  Operation allocate(std::size_t bytes);
  Operation barrier();

 private:
  Operation next(Kind kind, Dtype dtype, std::int64_t numel);
  Operation next(Kind kind, Dtype dtype, Blocks blocks);
  Operation next(Kind kind, Dtype dtype, std::int64_t numel, int root);
  void check_blocks(Operation const& operation, std::int64_t whole_numel) const;
  void check_reduce_target(Operation const& operation, memory::TensorView in,
                           memory::TensorView out) const;

  int rank_, size_;
  std::uint64_t calls_ = 0;
};

}  // namespace tessera::comm::detail
