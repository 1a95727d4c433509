#include "detail/host_staging.hpp"

#include <algorithm>
#include <utility>

#include "tessera/kernels/embedding.hpp"
#include "tessera/kernels/sum.hpp"

namespace tessera::model {

double LossSum::value() const {
  known_.wait("the losses of a micro-batch", detail::queue_deadline);
  return *value_;
}

namespace detail {
namespace {

/// The next token of each row; -1 after a row's last token.
void shift(Batch const& batch, std::int32_t* targets) {
  for (std::int64_t i = 0; i < batch.rows * batch.sequence; ++i)
    targets[i] = (i + 1) % batch.sequence == 0 ? -1 : batch.tokens[i + 1];
}

}  // namespace

Inputs PinnedInputBuffers::stage(PassContext const& pass, Batch const& batch, PassKind kind) {
  Inputs inputs{.tokens = pass.arena.allocate(Dtype::int32, {pass.batch, pass.sequence}),
                .targets = pass.arena.allocate(Dtype::int32, {pass.positions()}),
                .order = {},
                .loss = batch.loss};
  auto* const tokens = inputs.tokens.as<std::int32_t>();
  auto* const targets = inputs.targets.as<std::int32_t>();
  std::int64_t const count = pass.positions();
  bool const ordered = kind == PassKind::training &&
                       memory::memory_space_of(pass.compute) == memory::MemorySpace::device;
  if (ordered) inputs.order = pass.arena.allocate(Dtype::int32, {count});
  if (!batch.tokens) return inputs;
  if (pass.compute.kind() == memory::QueueKind::inline_host) {
    std::copy(batch.tokens, batch.tokens + count, tokens);
    shift(batch, targets);
    return inputs;
  }
  Slot& slot = next_slot((ordered ? 3 : 2) * count, pass.compute);
  auto* const staged = static_cast<std::int32_t*>(slot.buffer.data());
  std::copy(batch.tokens, batch.tokens + count, staged);
  shift(batch, staged + count);
  memory::copy(pass.compute, tokens, staged, inputs.tokens.bytes());
  memory::copy(pass.compute, targets, staged + count, inputs.targets.bytes());
  if (ordered) {
    kernels::order_by_token(staged + 2 * count, batch.tokens, count);
    memory::copy(pass.compute, inputs.order.as<std::int32_t>(), staged + 2 * count,
                 inputs.order.bytes());
  }
  slot.copied = pass.compute.record();
  return inputs;
}

TensorView PinnedInputBuffers::stage(PassContext const& pass,
                                     std::vector<std::int32_t> const& values) {
  auto const count = static_cast<std::int64_t>(values.size());
  TensorView const out = pass.arena.allocate(Dtype::int32, {count});
  if (pass.compute.kind() == memory::QueueKind::inline_host) {
    std::copy(values.begin(), values.end(), out.as<std::int32_t>());
    return out;
  }
  Slot& slot = next_slot(count, pass.compute);
  auto* const staged = static_cast<std::int32_t*>(slot.buffer.data());
  std::copy(values.begin(), values.end(), staged);
  memory::copy(pass.compute, out.as<std::int32_t>(), staged, out.bytes());
  slot.copied = pass.compute.record();
  return out;
}

PinnedInputBuffers::Slot& PinnedInputBuffers::next_slot(std::int64_t numel, Queue const& compute) {
  Slot& slot = slots_[next_++ % slots_.size()];
  slot.copied.wait("the tokens of an earlier micro-batch", queue_deadline);
  auto const bytes = static_cast<std::size_t>(numel) * sizeof(std::int32_t);
  bool const on_device = memory::memory_space_of(compute) == memory::MemorySpace::device;
  auto const space = on_device ? memory::MemorySpace::pinned : memory::MemorySpace::host;
  if (slot.buffer.bytes() < bytes)
    slot.buffer = memory::Buffer("staged tokens", memory::Purpose::data, bytes, space);
  return slot;
}

std::shared_ptr<LossReadback::Slot> LossReadback::free_slot(memory::MemorySpace space) {
  for (auto const& slot : slots_)
    if (slot.use_count() == 1) return slot;
  auto slot = std::make_shared<Slot>();
  slot->computed =
      memory::Buffer("sum of losses", memory::Purpose::workspace, sizeof(double), space);
  if (space == memory::MemorySpace::device)
    slot->arrived = memory::Buffer("sum of losses, read back", memory::Purpose::workspace,
                                   sizeof(double), memory::MemorySpace::pinned);
  slots_.push_back(slot);
  return slot;
}

LossSum LossReadback::sum(Queue& compute, ConstTensorView losses) {
  auto slot = free_slot(memory::memory_space_of(compute));
  auto* const computed = static_cast<double*>(slot->computed.data());
  auto* value = computed;
  kernels::sum(compute, computed, losses);
  if (slot->arrived.data()) {
    value = static_cast<double*>(slot->arrived.data());
    memory::copy(compute, value, computed, sizeof(double));
  }
  return {std::shared_ptr<double const>(std::move(slot), value), compute.record()};
}

}  // namespace detail
}  // namespace tessera::model
