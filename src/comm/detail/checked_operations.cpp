#include "detail/checked_operations.hpp"

#include "detail/sums.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm::detail {

using memory::ConstTensorView;
using memory::TensorView;

Operation CheckedOperations::next(Kind kind, Dtype dtype, std::int64_t numel) {
  Operation o;
  o.kind = kind;
  o.dtype = dtype;
  o.numel = numel;
  o.sequence = ++calls_;
  return o;
}

Operation CheckedOperations::next(Kind kind, Dtype dtype, Blocks blocks) {
  Operation o = next(kind, dtype, blocks.count);
  o.stride = blocks.stride;
  o.offset = blocks.offset;
  return o;
}

Operation CheckedOperations::next(Kind kind, Dtype dtype, std::int64_t numel, int root) {
  Operation o = next(kind, dtype, numel);
  o.root = root;
  TESSERA_VALIDATE(root >= 0 && root < size_, InternalError, describe(o),
                   ": the root must be a rank from 0 to ", size_ - 1);
  return o;
}

void CheckedOperations::check_blocks(Operation const& o, std::int64_t whole_numel) const {
  bool const in_order =
      o.numel >= 0 && o.offset >= 0 && (o.numel + o.offset <= o.stride || size_ == 1);
  std::int64_t const last = (size_ - 1) * o.stride + o.offset + o.numel;
  TESSERA_VALIDATE(in_order && last <= whole_numel, InternalError, describe(o), ": the blocks of ",
                   size_, " ranks (offset ", o.offset, " + count ", o.numel, " within stride ",
                   o.stride, ") do not fit into ", whole_numel, " elements");
}

/// The result may overwrite this rank's region of the input, as long as no element is overwritten
/// before it is read.
void CheckedOperations::check_reduce_target(Operation const& o, TensorView in,
                                            TensorView out) const {
  require_reducible(in.dtype(), out.dtype());
  TESSERA_VALIDATE(out.numel() == o.numel, InternalError, describe(o), ": the result has ",
                   out.numel(), " elements");
  auto const* const input = static_cast<std::byte const*>(in.data());
  auto const* const to = static_cast<std::byte const*>(out.data());
  if (out.empty() || to >= input + in.bytes() || to + out.bytes() <= input) return;
  auto const* const region = input + static_cast<std::size_t>(rank_ * o.stride) * o.element();
  std::size_t const before = static_cast<std::size_t>(o.offset) * o.element();
  std::size_t const region_bytes =
      size_ == 1 ? in.bytes() : static_cast<std::size_t>(o.stride) * o.element();
  TESSERA_VALIDATE(
      to >= region && to + out.bytes() <= region + region_bytes && to <= region + before &&
          size_of(out.dtype()) <= o.element(),
      InternalError, describe(o),
      ": the result overlaps the input but not as a packed block at or before this rank's own");
}

Operation CheckedOperations::broadcast(TensorView data, int root) {
  return next(Kind::broadcast, data.dtype(), data.numel(), root);
}

Operation CheckedOperations::all_reduce(TensorView data, ReduceOp op) {
  Operation o = next(Kind::all_reduce, data.dtype(), data.numel());
  o.op = op;
  require_reducible(data.dtype(), data.dtype());
  return o;
}

Operation CheckedOperations::reduce(TensorView data, ReduceOp op, int root) {
  Operation o = next(Kind::reduce, data.dtype(), data.numel(), root);
  o.op = op;
  require_reducible(data.dtype(), data.dtype());
  return o;
}

Operation CheckedOperations::reduce_scatter(TensorView in, Blocks blocks, TensorView out) {
  Operation const o = next(Kind::reduce_scatter, in.dtype(), blocks);
  check_blocks(o, in.numel());
  check_reduce_target(o, in, out);
  return o;
}

Operation CheckedOperations::all_gather(TensorView inout, Blocks blocks) {
  Operation const o = next(Kind::all_gather, inout.dtype(), blocks);
  check_blocks(o, inout.numel());
  return o;
}

Operation CheckedOperations::all_gather(ConstTensorView in, TensorView out, Blocks blocks) {
  Operation const o = next(Kind::all_gather, out.dtype(), blocks);
  check_blocks(o, out.numel());
  TESSERA_VALIDATE(in.dtype() == out.dtype() && in.numel() >= o.offset + o.numel, InternalError,
                   describe(o), ": the input has ", in.numel(), " elements of ",
                   tessera::name_of(in.dtype()), ", less than offset + count or of another type");
  return o;
}

Operation CheckedOperations::scatter(ConstTensorView in, TensorView out, int root) {
  Operation const o = next(Kind::scatter, out.dtype(), out.numel(), root);
  TESSERA_VALIDATE(
      rank_ != root || (in.dtype() == out.dtype() && in.numel() == out.numel() * size_),
      InternalError, describe(o), ": the root's input has ", in.numel(), " elements of ",
      tessera::name_of(in.dtype()), ", not ", size_, " times the output");
  return o;
}

Operation CheckedOperations::gather(ConstTensorView in, TensorView out, int root) {
  Operation const o = next(Kind::gather, in.dtype(), in.numel(), root);
  TESSERA_VALIDATE(
      rank_ != root || (in.dtype() == out.dtype() && out.numel() == in.numel() * size_),
      InternalError, describe(o), ": the root's output has ", out.numel(), " elements of ",
      tessera::name_of(out.dtype()), ", not ", size_, " times the input");
  return o;
}

Operation CheckedOperations::allocate(std::size_t bytes) {
  return next(Kind::allocate, Dtype::uint8, static_cast<std::int64_t>(bytes));
}
Operation CheckedOperations::barrier() { return next(Kind::barrier, Dtype::uint8, 0); }

}  // namespace tessera::comm::detail
