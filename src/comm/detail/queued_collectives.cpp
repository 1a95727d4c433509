#include "detail/queued_collectives.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

/// Time that the destructor leaves to operations under way, and a lane beyond an operation's own
/// deadline.
constexpr Deadline grace = 5s;
/// A longer deadline is as good as none and could overflow a clock.
constexpr Deadline longest = std::chrono::hours(24 * 365);

std::byte* bytes_of(memory::TensorView v) { return static_cast<std::byte*>(v.data()); }
std::byte const* bytes_of(memory::ConstTensorView v) {
  return static_cast<std::byte const*>(v.data());
}

}  // namespace

QueuedCollectives::QueuedCollectives(std::unique_ptr<Transport> transport, Deadline deadline)
    : transport_(std::move(transport)),
      deadline_(std::min(deadline, longest)),
      arguments_(transport_->rank(), transport_->size()),
      queue_(memory::make_worker_queue("comm")) {}

QueuedCollectives::~QueuedCollectives() {
  if (!last_.wait_for(grace)) transport_->abandon();
  queue_.reset();
}

void QueuedCollectives::await(memory::Event const& after, Operation const& o) const {
  while (!after.wait_for(100ms))
    if (transport_->abandoned())
      throw PeerLostError(rank(), concat(describe(o), " was given up before its input was ready"));
  after.wait(name_of(o.kind), 0ms);
}

Pending QueuedCollectives::enqueue(Operation const& o, memory::Event after,
                                   std::function<void(Transport&)> body) {
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
      throw PeerLostError(
          -1,
          concat(pending.what(), ": rank ", rank(), " has waited for ", (deadline_ + grace).count(),
                 " ms and its communication lane stands still; look for a rank that computes or "
                 "writes for "
                 "longer than the communication deadline, or raise the deadline"));
  }
  pending.event().wait(pending.what(), 0ms);
}

std::shared_ptr<void> QueuedCollectives::allocate(std::string const& name, memory::Purpose purpose,
                                                  std::size_t bytes) {
  Operation const o = arguments_.allocate(bytes);
  struct Result {
    std::shared_ptr<void> memory;
    std::optional<OutOfMemoryError>
        refused;  // the lane goes on: all ranks agree that there is no memory
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
  Operation const o = arguments_.barrier();
  wait(enqueue(o, {}, [o](Transport& t) { t.barrier(o); }));
}

Pending QueuedCollectives::broadcast(memory::TensorView data, int root, memory::Event after) {
  Operation const o = arguments_.broadcast(data, root);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.broadcast(o, bytes_of(data)); });
}

Pending QueuedCollectives::all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) {
  Operation const o = arguments_.all_reduce(data, op);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.all_reduce(o, bytes_of(data)); });
}

Pending QueuedCollectives::reduce(memory::TensorView data, ReduceOp op, int root,
                                  memory::Event after) {
  Operation const o = arguments_.reduce(data, op, root);
  return enqueue(o, std::move(after), [o, data](Transport& t) { t.reduce(o, bytes_of(data)); });
}

Pending QueuedCollectives::reduce_scatter(memory::TensorView in, Blocks blocks,
                                          memory::TensorView out, bool accumulate,
                                          memory::Event after) {
  Operation const o = arguments_.reduce_scatter(in, blocks, out);
  return enqueue(o, std::move(after), [o, in, out, accumulate](Transport& t) {
    t.reduce_scatter(o, bytes_of(in), {bytes_of(out), out.dtype(), accumulate});
  });
}

Pending QueuedCollectives::all_gather(memory::TensorView inout, Blocks blocks,
                                      memory::Event after) {
  Operation const o = arguments_.all_gather(inout, blocks);
  return enqueue(o, std::move(after),
                 [o, inout](Transport& t) { t.all_gather(o, nullptr, bytes_of(inout)); });
}

Pending QueuedCollectives::all_gather(memory::ConstTensorView in, memory::TensorView out,
                                      Blocks blocks, memory::Event after) {
  Operation const o = arguments_.all_gather(in, out, blocks);
  std::byte const* const block =
      in.empty() ? nullptr : bytes_of(in) + static_cast<std::size_t>(o.offset) * o.element();
  return enqueue(o, std::move(after),
                 [o, block, out](Transport& t) { t.all_gather(o, block, bytes_of(out)); });
}

Pending QueuedCollectives::scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                                   memory::Event after) {
  Operation const o = arguments_.scatter(in, out, root);
  return enqueue(o, std::move(after),
                 [o, in, out](Transport& t) { t.scatter(o, bytes_of(in), bytes_of(out)); });
}

Pending QueuedCollectives::gather(memory::ConstTensorView in, memory::TensorView out, int root,
                                  memory::Event after) {
  Operation const o = arguments_.gather(in, out, root);
  return enqueue(o, std::move(after),
                 [o, in, out](Transport& t) { t.gather(o, bytes_of(in), bytes_of(out)); });
}

}  // namespace tessera::comm::detail
