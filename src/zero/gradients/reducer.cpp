#include "gradients/reducer.hpp"

#include <algorithm>
#include <utility>

#include "layout/unit_views.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

void multiply(memory::Queue& queue, memory::TensorView data, float factor) {
  if (factor != 1.0f) kernels::scale(queue, data, factor);
}

}  // namespace

Reducer::Reducer(StoreContext const& context, Averaging const& averaging)
    : context_(context),
      before_(static_cast<float>(averaging.before)),
      after_(static_cast<float>(averaging.after)),
      wire_("gradients on the wire", context.config.communication_dtype, context.comm) {
  if (context.node || context.rail) quantized_ = std::make_unique<QuantizedReduce>(context);
  if (!context.replicas) return;
  StoreContext const of_copies{context.config, context.plan, context.ownership, *context.replicas,
                               context.compute};
  across_ = std::make_unique<Reducer>(of_copies, Averaging{.before = averaging.across});
}

BufferPool::Entry Reducer::to_wire(memory::TensorView gradients) {
  auto buffer = wire_.take(gradients.numel());
  context_.compute.wait(buffer.ready);
  kernels::cast(context_.compute, buffer.data, gradients);
  return buffer;
}

void Reducer::reduce_scatter(UnitIndex unit, memory::TensorView gradients, memory::TensorView out,
                             GradientFlow::MicroStep micro, Retire retire, Retire reduced) {
  if (quantized_) {
    multiply(context_.compute, gradients, before_);
    quantized_->start(unit, gradients, out, micro, std::move(reduced));
    if (retire) retire(context_.compute.record());
    return;
  }
  auto const& layout = context_.plan.unit(unit);
  auto in = gradients;
  if (gradients.dtype() != context_.config.communication_dtype) {
    auto const buffer = to_wire(gradients);
    if (retire) retire(context_.compute.record());
    in = buffer.data;
    retire = [this, buffer](memory::Event done) { wire_.give_back(buffer, std::move(done)); };
  }
  multiply(context_.compute, in, before_);
  auto const after = context_.compute.record();
  comm::Pending last;
  for (auto const& blocks :
       cut_blocks(layout, context_.plan.ranks(), context_.config.reduce_bucket_size))
    last = context_.comm.reduce_scatter(
        in, blocks, part(out, blocks.offset, blocks.count),
        micro.first ? memory::WriteMode::overwrite : memory::WriteMode::add, after);
  started(std::move(last), [this, out, micro, retire = std::move(retire),
                            reduced = std::move(reduced)](memory::Event done) {
    if (across_ && micro.last)
      across_->all_reduce(out, done, reduced);
    else if (reduced)
      reduced(done);
    if (retire) retire(std::move(done));
  });
}

void Reducer::all_reduce(memory::TensorView data, memory::Event ready, Retire reduced) {
  auto sent = data;
  Retire retire = reduced;
  bool const casts = data.dtype() != context_.config.communication_dtype;
  if (casts || before_ != 1.0f) context_.compute.wait(ready);
  if (casts) {
    auto const buffer = to_wire(data);
    sent = buffer.data;
    retire = [this, buffer, data, reduced = std::move(reduced)](memory::Event const& done) {
      context_.compute.wait(done);
      multiply(context_.compute, buffer.data, after_);
      kernels::cast(context_.compute, data, buffer.data);
      auto const cast = context_.compute.record();
      wire_.give_back(buffer, cast);
      if (reduced) reduced(cast);
    };
  }
  multiply(context_.compute, sent, before_);
  if (casts || before_ != 1.0f) ready = context_.compute.record();
  std::int64_t const total = data.numel();
  std::int64_t const piece =
      std::max(PartitionPlan::default_alignment, context_.config.reduce_bucket_size);
  comm::Pending last;
  for (std::int64_t at = 0; at < total; at += piece)
    last = context_.comm.all_reduce(part(sent, at, std::min(piece, total - at)),
                                    comm::ReduceOp::sum, ready);
  started(std::move(last), std::move(retire));
}

void Reducer::started(comm::Pending last, Retire retire) {
  last_ = last;
  in_flight_.push_back({std::move(last), std::move(retire)});
  if (!context_.config.overlap_comm) context_.comm.wait(last_);
  while (in_flight_.size() > 1) retire_oldest();
}

void Reducer::retire_oldest() {
  auto const oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (oldest.retire) oldest.retire(oldest.last.event());
}

void Reducer::retire_all() {
  while (!in_flight_.empty()) retire_oldest();
}

void Reducer::finish() {
  if (memory::memory_space_of(context_.compute) == memory::MemorySpace::device)
    std::exchange(last_, {}).order_before(context_.compute);
  else
    context_.comm.wait(std::exchange(last_, {}));
  retire_all();
  if (quantized_) quantized_->finish();
  if (across_) across_->finish();
}

void Reducer::wait_all() {
  context_.comm.wait(std::exchange(last_, {}));
  retire_all();
  if (quantized_) quantized_->finish();
  if (across_) across_->wait_all();
}

}  // namespace tessera::zero::detail
