#include "base/checked_operations.hpp"

#include <algorithm>

#include "base/sums.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm::detail {

using memory::ConstTensorView;
using memory::TensorView;

Operation CheckedOperations::make(Kind kind, Dtype dtype, std::int64_t numel) const {
  Operation o;
  o.kind = kind;
  o.dtype = dtype;
  o.numel = numel;
  group_.name.copy(o.group.data(), o.group.size() - 1);
  return o;
}

Operation CheckedOperations::next(Kind kind, Dtype dtype, std::int64_t numel) {
  Operation o = make(kind, dtype, numel);
  o.sequence = ++calls_;
  return o;
}

/// Only two ranks make the call: it must not change the numbers of the others.
Operation CheckedOperations::with_peer(Kind kind, ConstTensorView data, int peer) {
  Operation o = make(kind, data.dtype(), data.numel());
  o.sequence = ++messages_;
  o.root = peer;
  TESSERA_VALIDATE(peer >= 0 && peer < group_.size && peer != group_.rank, InternalError,
                   describe(o), ": the peer must be another rank from 0 to ", group_.size - 1,
                   ", this is rank ", group_.rank);
  return o;
}

Operation CheckedOperations::next(Kind kind, Dtype dtype, StridedShards shards) {
  Operation o = next(kind, dtype, shards.count);
  o.stride = shards.stride;
  o.offset = shards.offset;
  return o;
}

Operation CheckedOperations::next(Kind kind, Dtype dtype, std::int64_t numel, int root) {
  Operation o = next(kind, dtype, numel);
  o.root = root;
  TESSERA_VALIDATE(root >= 0 && root < group_.size, InternalError, describe(o),
                   ": the root must be a rank from 0 to ", group_.size - 1);
  return o;
}

void CheckedOperations::check_shards(Operation const& o, std::int64_t numel) const {
  StridedShards const shards{o.numel, o.stride, o.offset};
  TESSERA_VALIDATE(shards_fit(shards, group_.size, numel), InternalError, describe(o), ": ",
                   describe(shards, group_.size), " do not fit into ", numel, " elements");
}

/// The output may overlap this rank's region of the input if no element is overwritten before it is
/// read.
void CheckedOperations::check_reduce_target(Operation const& o, TensorView in,
                                            TensorView out) const {
  require_reducible(in.dtype(), out.dtype());
  TESSERA_VALIDATE(out.numel() == o.numel, InternalError, describe(o), ": the output has ",
                   out.numel(), " elements");
  auto const* const input = static_cast<std::byte const*>(in.data());
  auto const* const to = static_cast<std::byte const*>(out.data());
  if (out.empty() || to >= input + in.bytes() || to + out.bytes() <= input) return;
  auto const* const region =
      input + static_cast<std::size_t>(group_.rank * o.stride) * o.element_bytes();
  std::size_t const before = static_cast<std::size_t>(o.offset) * o.element_bytes();
  std::size_t const region_bytes =
      group_.size == 1 ? in.bytes() : static_cast<std::size_t>(o.stride) * o.element_bytes();
  TESSERA_VALIDATE(to >= region && to + out.bytes() <= region + region_bytes &&
                       to <= region + before && size_of(out.dtype()) <= o.element_bytes(),
                   InternalError, describe(o),
                   ": the output overlaps the input; it may do so only at or before the start of "
                   "this rank's shard, "
                   "with elements that are not larger");
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

Operation CheckedOperations::reduce_scatter(TensorView in, StridedShards shards, TensorView out) {
  Operation const o = next(Kind::reduce_scatter, in.dtype(), shards);
  check_shards(o, in.numel());
  check_reduce_target(o, in, out);
  return o;
}

Operation CheckedOperations::all_gather(TensorView inout, StridedShards shards) {
  Operation const o = next(Kind::all_gather, inout.dtype(), shards);
  check_shards(o, inout.numel());
  return o;
}

Operation CheckedOperations::all_gather(ConstTensorView in, TensorView out, StridedShards shards) {
  Operation const o = next(Kind::all_gather, out.dtype(), shards);
  check_shards(o, out.numel());
  TESSERA_VALIDATE(in.dtype() == out.dtype() && in.numel() >= o.offset + o.numel, InternalError,
                   describe(o), ": the input has ", in.numel(), " elements of ",
                   tessera::name_of(in.dtype()),
                   "; it needs offset + count elements of the output's dtype");
  return o;
}

Operation CheckedOperations::scatter(ConstTensorView in, TensorView out, int root) {
  Operation const o = next(Kind::scatter, out.dtype(), out.numel(), root);
  TESSERA_VALIDATE(
      group_.rank != root || (in.dtype() == out.dtype() && in.numel() == out.numel() * group_.size),
      InternalError, describe(o), ": the root's input has ", in.numel(), " elements of ",
      tessera::name_of(in.dtype()), ", not ", group_.size, " times the output");
  return o;
}

Operation CheckedOperations::gather(ConstTensorView in, TensorView out, int root) {
  Operation const o = next(Kind::gather, in.dtype(), in.numel(), root);
  TESSERA_VALIDATE(
      group_.rank != root || (in.dtype() == out.dtype() && out.numel() == in.numel() * group_.size),
      InternalError, describe(o), ": the root's output has ", out.numel(), " elements of ",
      tessera::name_of(out.dtype()), ", not ", group_.size, " times the input");
  return o;
}

Operation CheckedOperations::all_to_all(ConstTensorView in, TensorView out) {
  Operation const o = next(Kind::all_to_all, in.dtype(), in.numel() / group_.size);
  TESSERA_VALIDATE(
      in.dtype() == out.dtype() && in.numel() == out.numel() && in.numel() == o.numel * group_.size,
      InternalError, describe(o), ": the input has ", in.numel(), " elements and the output ",
      out.numel(), "; both need equally many of one dtype for each of ", group_.size, " ranks");
  return o;
}

Operation CheckedOperations::all_to_all(ConstTensorView in, Parts const& send, TensorView out,
                                        Parts const& receive) {
  std::int64_t total = 0;
  for (auto const count : send.counts) total += count;
  Operation const o = next(Kind::all_to_all_v, in.dtype(), total);
  TESSERA_VALIDATE(in.dtype() == out.dtype(), InternalError, describe(o),
                   ": input and output differ in dtype");
  require_parts(o, send, group_.size, in.numel());
  require_parts(o, receive, group_.size, out.numel());
  auto const own = static_cast<std::size_t>(group_.rank);
  TESSERA_VALIDATE(send.counts[own] == receive.counts[own], InternalError, describe(o),
                   ": this rank sends itself ", send.counts[own], " elements and receives ",
                   receive.counts[own]);
  return o;
}

Operation CheckedOperations::send(ConstTensorView data, int to) {
  return with_peer(Kind::send, data, to);
}
Operation CheckedOperations::receive(TensorView data, int from) {
  return with_peer(Kind::receive, data, from);
}
Operation CheckedOperations::split() { return next(Kind::split, Dtype::uint8, 0); }

Operation CheckedOperations::allocate(std::size_t bytes) {
  return next(Kind::allocate, Dtype::uint8, static_cast<std::int64_t>(bytes));
}
Operation CheckedOperations::barrier() { return next(Kind::barrier, Dtype::uint8, 0); }

}  // namespace tessera::comm::detail
