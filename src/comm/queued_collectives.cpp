#include "detail/queued_collectives.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

/// Time that the destructor leaves to operations under way, and a lane beyond an operation's own deadline.
constexpr Deadline grace = 5s;
/// A longer deadline is as good as none and could overflow a clock.
constexpr Deadline longest = std::chrono::hours(24 * 365);

std::byte* bytes_of(memory::TensorView v) { return static_cast<std::byte*>(v.data()); }
std::byte const* bytes_of(memory::ConstTensorView v) { return static_cast<std::byte const*>(v.data()); }

}  // namespace

QueuedCollectives::QueuedCollectives(std::unique_ptr<Transport> transport, Deadline deadline)
    : transport_(std::move(transport)), deadline_(std::min(deadline, longest)), queue_(memory::make_worker_queue("comm")) {}

QueuedCollectives::~QueuedCollectives() {
  if (!last_.wait_for(grace)) transport_->abandon();
  queue_.reset();
}

Operation QueuedCollectives::next(Kind kind, Dtype dtype, std::int64_t numel) {
  Operation o;
  o.kind = kind;
  o.dtype = dtype;
  o.numel = numel;
  o.sequence = ++calls_;
  return o;
}

void QueuedCollectives::await(memory::Event const& after, Operation const& o) const {
  while (!after.wait_for(100ms))
    if (transport_->abandoned()) throw PeerLostError(rank(), concat(describe(o), " was given up before its input was ready"));
  after.wait(name_of(o.kind), 0ms);
}

Pending QueuedCollectives::enqueue(Operation const& o, memory::Event after, std::function<void(Transport&)> body) {
  queue_->submit([this, o, after = std::move(after), body = std::move(body)] {
    try {
      ++progress_;
      await(after, o);
      ++progress_;
      body(*transport_);
      ++progress_;
    } catch (...) {
      transport_->abandon();
      throw;
    }
  });
  last_ = queue_->record();
  return {last_, describe(o)};
}

void QueuedCollectives::wait(Pending const& pending) {
  for (;;) {
    std::uint64_t const seen = progress_;
    if (pending.event().wait_for(deadline_ + grace)) break;
    if (seen == progress_)
      throw PeerLostError(-1, concat(pending.what(), ": rank ", rank(), " has waited for ", (deadline_ + grace).count(),
                                     " ms and its communication lane stands still; look for a rank that computes or writes for "
                                     "longer than the communication deadline, or raise the deadline"));
  }
  pending.event().wait(pending.what(), 0ms);
}

std::shared_ptr<void> QueuedCollectives::allocate(std::string const& name, memory::Purpose purpose, std::size_t bytes) {
  Operation const o = next(Kind::allocate, Dtype::uint8, static_cast<std::int64_t>(bytes));
  struct Result {
    std::shared_ptr<void> memory;
    std::optional<OutOfMemoryError> refused;  // the lane goes on: all ranks agree that there is no memory
  };
  auto const result = std::make_shared<Result>();
  wait(enqueue(o, {}, [=](Transport& t) {
    try {
      result->memory = t.allocate(o, name, purpose);
    } catch (OutOfMemoryError const& error) {
      result->refused = error;
    }
  }));
  if (result->refused) throw *result->refused;
  return result->memory;
}

void QueuedCollectives::barrier() {
  Operation const o = next(Kind::barrier, Dtype::uint8, 0);
  wait(enqueue(o, {}, [o](Transport& t) { t.barrier(o); }));
}

void QueuedCollectives::check_root(Operation const& o) const {
  TESSERA_VALIDATE(o.root >= 0 && o.root < size(), InternalError, describe(o), ": the root must be a rank from 0 to ", size() - 1);
}

void QueuedCollectives::check_blocks(Operation const& o, std::int64_t whole_numel) const {
  bool const in_order = o.numel >= 0 && o.offset >= 0 && (o.numel + o.offset <= o.stride || size() == 1);
  std::int64_t const last = (size() - 1) * o.stride + o.offset + o.numel;
  TESSERA_VALIDATE(in_order && last <= whole_numel, InternalError, describe(o), ": the blocks of ", size(),
                   " ranks (offset ", o.offset, " + count ", o.numel, " within stride ", o.stride, ") do not fit into ", whole_numel, " elements");
}

/// The result may overwrite this rank's region of the input, as long as no element is overwritten before it is read.
void QueuedCollectives::check_reduce_target(Operation const& o, memory::TensorView in, memory::TensorView out) const {
  require_reducible(in.dtype(), out.dtype());
  TESSERA_VALIDATE(out.numel() == o.numel, InternalError, describe(o), ": the result has ", out.numel(), " elements");
  std::byte const* const input = bytes_of(in);
  std::byte const* const to = bytes_of(out);
  if (out.empty() || to >= input + in.bytes() || to + out.bytes() <= input) return;
  std::byte const* const region = input + static_cast<std::size_t>(rank() * o.stride) * o.element();
  std::size_t const before = static_cast<std::size_t>(o.offset) * o.element();
  std::size_t const region_bytes = size() == 1 ? in.bytes() : static_cast<std::size_t>(o.stride) * o.element();
  TESSERA_VALIDATE(to >= region && to + out.bytes() <= region + region_bytes && to <= region + before && size_of(out.dtype()) <= o.element(),
                   InternalError, describe(o), ": the result overlaps the input but not as a packed block at or before this rank's own");
}

Pending QueuedCollectives::broadcast(memory::TensorView data, int root, memory::Event after) {
  Operation o = next(Kind::broadcast, data.dtype(), data.numel());
  o.root = root;
  check_root(o);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.broadcast(o, bytes_of(data)); });
}

Pending QueuedCollectives::all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) {
  Operation o = next(Kind::all_reduce, data.dtype(), data.numel());
  o.op = op;
  require_reducible(data.dtype(), data.dtype());
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.all_reduce(o, bytes_of(data)); });
}

Pending QueuedCollectives::reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) {
  Operation o = next(Kind::reduce, data.dtype(), data.numel());
  o.op = op;
  o.root = root;
  check_root(o);
  require_reducible(data.dtype(), data.dtype());
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.reduce(o, bytes_of(data)); });
}

Pending QueuedCollectives::reduce_scatter(memory::TensorView in, Blocks blocks, memory::TensorView out, bool accumulate,
                                          memory::Event after) {
  Operation o = next(Kind::reduce_scatter, in.dtype(), blocks.count);
  o.stride = blocks.stride;
  o.offset = blocks.offset;
  check_blocks(o, in.numel());
  check_reduce_target(o, in, out);
  return enqueue(o, std::move(after), [o, in, out, accumulate](Transport& t) {
    t.reduce_scatter(o, bytes_of(in), {bytes_of(out), out.dtype(), accumulate});
  });
}

Pending QueuedCollectives::all_gather(memory::TensorView inout, Blocks blocks, memory::Event after) {
  Operation o = next(Kind::all_gather, inout.dtype(), blocks.count);
  o.stride = blocks.stride;
  o.offset = blocks.offset;
  check_blocks(o, inout.numel());
  return enqueue(o, std::move(after), [o, inout](Transport& t) { t.all_gather(o, nullptr, bytes_of(inout)); });
}

Pending QueuedCollectives::all_gather(memory::ConstTensorView in, memory::TensorView out, Blocks blocks, memory::Event after) {
  Operation o = next(Kind::all_gather, out.dtype(), blocks.count);
  o.stride = blocks.stride;
  o.offset = blocks.offset;
  check_blocks(o, out.numel());
  TESSERA_VALIDATE(in.dtype() == out.dtype() && in.numel() >= o.offset + o.numel, InternalError, describe(o), ": the input has ",
                   in.numel(), " elements of ", tessera::name_of(in.dtype()), ", less than offset + count or of another type");
  std::byte const* const block = in.empty() ? nullptr : bytes_of(in) + static_cast<std::size_t>(o.offset) * o.element();
  return enqueue(o, std::move(after), [o, block, out](Transport& t) { t.all_gather(o, block, bytes_of(out)); });
}

Pending QueuedCollectives::scatter(memory::ConstTensorView in, memory::TensorView out, int root, memory::Event after) {
  Operation o = next(Kind::scatter, out.dtype(), out.numel());
  o.root = root;
  check_root(o);
  TESSERA_VALIDATE(rank() != root || (in.dtype() == out.dtype() && in.numel() == out.numel() * size()), InternalError, describe(o),
                   ": the root's input has ", in.numel(), " elements of ", tessera::name_of(in.dtype()), ", not ", size(), " times the output");
  return enqueue(o, std::move(after), [o, in, out](Transport& t) { t.scatter(o, bytes_of(in), bytes_of(out)); });
}

Pending QueuedCollectives::gather(memory::ConstTensorView in, memory::TensorView out, int root, memory::Event after) {
  Operation o = next(Kind::gather, in.dtype(), in.numel());
  o.root = root;
  check_root(o);
  TESSERA_VALIDATE(rank() != root || (in.dtype() == out.dtype() && out.numel() == in.numel() * size()), InternalError, describe(o),
                   ": the root's output has ", out.numel(), " elements of ", tessera::name_of(out.dtype()), ", not ", size(), " times the input");
  return enqueue(o, std::move(after), [o, in, out](Transport& t) { t.gather(o, bytes_of(in), bytes_of(out)); });
}

}  // namespace tessera::comm::detail
