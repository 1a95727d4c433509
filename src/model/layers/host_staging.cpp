#include "layers/host_staging.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/loss/embedding.hpp"

namespace tessera::model {

double LossSum::value() const {
  known_.wait("the losses of a micro-batch", detail::queue_deadline);
  return *value_;
}

namespace detail {
namespace {

constexpr std::int64_t place_numel = sizeof(kernels::DropoutPlace) / sizeof(std::int32_t);

/// The next label of each row; -1 after a row's last token, and after a document's if that is not
/// predicted.
void shift(Batch const& batch, DocumentOptions const& documents, std::int32_t* targets) {
  auto const* const labels = batch.labels ? batch.labels : batch.tokens;
  for (std::int64_t i = 0; i < batch.rows * batch.sequence; ++i) {
    bool const masked = documents.eod_mask_loss && batch.tokens[i] == documents.eod_token;
    targets[i] = masked || (i + 1) % batch.sequence == 0 ? -1 : labels[i + 1];
  }
}

}  // namespace

Inputs PinnedInputBuffers::stage(PassContext const& pass, Batch const& batch, PassKind kind,
                                 DocumentOptions const& documents) {
  std::int64_t const count = pass.positions();
  bool const ordered = kind == PassKind::training &&
                       memory::memory_space_of(pass.compute) == memory::MemorySpace::device;
  std::int64_t lists = 0;
  auto const allocate = [&](bool wanted) {
    lists += wanted;
    return wanted ? pass.arena.allocate(Dtype::int32, {pass.batch, pass.sequence}) : TensorView{};
  };
  Inputs inputs{.tokens = allocate(true),
                .targets = allocate(true).reshape({count}),
                .order = allocate(ordered),
                .documents = allocate(documents.reset_attention_mask),
                .positions = allocate(documents.reset_position_ids),
                .position_order = allocate(ordered && documents.reset_position_ids),
                .loss = batch.loss};
  TensorView const place =
      kind == PassKind::training ? pass.arena.allocate(Dtype::int32, {place_numel}) : TensorView{};
  inputs.dropout_place = static_cast<kernels::DropoutPlace const*>(place.data());
  if (!batch.tokens) return inputs;
  bool const in_place = pass.compute.kind() == memory::QueueKind::inline_host;
  Slot* const slot = in_place ? nullptr : &next_slot(lists * count + place.numel(), pass.compute);
  auto* next = slot ? static_cast<std::int32_t*>(slot->buffer.data()) : nullptr;
  auto const fill = [&](TensorView to, auto const& write) {
    if (to.empty()) return;
    auto* const values = slot ? std::exchange(next, next + to.numel()) : to.as<std::int32_t>();
    write(values);
    if (slot) memory::copy(pass.compute, to.as<std::int32_t>(), values, to.bytes());
  };
  TokenRows const rows{batch.tokens, batch.rows, batch.sequence};
  std::int32_t const* positions = nullptr;
  fill(inputs.tokens, [&](auto* out) { std::copy(batch.tokens, batch.tokens + count, out); });
  fill(inputs.targets, [&](auto* out) { shift(batch, documents, out); });
  fill(inputs.order, [&](auto* out) { kernels::order_by_token(out, batch.tokens, count); });
  auto const document_starts = [&](std::int32_t* out) {
    if (!batch.documents) return find_documents(rows, documents.eod_token, out);
    std::copy(batch.documents, batch.documents + count, out);
  };
  fill(inputs.documents, document_starts);
  fill(inputs.positions, [&](auto* out) {
    document_starts(out);
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = static_cast<std::int32_t>(i % batch.sequence) - out[i];
    positions = out;
  });
  fill(inputs.position_order, [&](auto* out) { kernels::order_by_token(out, positions, count); });
  fill(place, [&](auto* out) {
    auto const first_row = static_cast<std::uint64_t>(batch.first_global_row);
    auto const values = dropout_place(pass.step, first_row);
    std::memcpy(out, &values, sizeof values);
  });
  if (slot) slot->copied = pass.compute.record();
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
  bool const on_device = slot->arrived.data() != nullptr;
  if (on_device) {
    value = static_cast<double*>(slot->arrived.data());
    memory::copy(compute, value, computed, sizeof(double));
  }
  return {std::shared_ptr<double const>(std::move(slot), value), compute.record(),
          on_device ? computed : nullptr};
}

}  // namespace detail
}  // namespace tessera::model

namespace tessera::model::detail {

std::int64_t RotaryStaging::frequencies_of(std::int64_t sequence) const {
  if (options_.scaling == kernels::RotaryScaling::longrope)
    return sequence > options_.original_max_positions ? options_.original_max_positions + 1 : 0;
  bool const grows =
      options_.scaling == kernels::RotaryScaling::dynamic && sequence > options_.max_positions;
  return grows ? sequence : 0;
}

kernels::RotaryTables RotaryStaging::stage(PassContext const& pass, std::int64_t positions,
                                           Staging staging, std::optional<std::int64_t> longest) {
  TensorView const cos = pass.arena.allocate(Dtype::fp32, {positions, columns()}),
                   sin = pass.arena.allocate(Dtype::fp32, {positions, columns()});
  if (staging == Staging::planned) return {cos, sin};
  Slot& slot = slot_for(pass, positions, longest.value_or(positions));
  auto const* const from = static_cast<float const*>(slot.buffer.data());
  memory::copy(pass.compute, cos.as<float>(), from, cos.bytes());
  memory::copy(pass.compute, sin.as<float>(), from + slot.positions * columns(), sin.bytes());
  slot.copied = pass.compute.record();
  return {cos, sin};
}

RotaryStaging::Slot& RotaryStaging::slot_for(PassContext const& pass, std::int64_t positions,
                                             std::int64_t longest) {
  std::int64_t const sequence = frequencies_of(longest);
  for (Slot& slot : slots_)
    if (slot.positions >= positions && slot.sequence == sequence) return slot;
  Slot& slot = slots_[next_++ % slots_.size()];
  if (slot.positions > 0) slot.copied.wait("the tables of rotary positions", queue_deadline);
  // generation lengthens a row by one position per pass
  slot.positions = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(positions, 16))));
  slot.sequence = sequence;
  fill(slot, pass);
  return slot;
}

void RotaryStaging::fill(Slot& slot, PassContext const& pass) const {
  auto const space = memory::memory_space_of(pass.compute) == memory::MemorySpace::device
                         ? memory::MemorySpace::pinned
                         : memory::MemorySpace::host;
  std::int64_t const numel = slot.positions * columns();
  slot.buffer = memory::Buffer("tables of rotary positions", memory::Purpose::data,
                               2 * static_cast<std::size_t>(numel) * sizeof(float), space);
  auto* const cos = static_cast<float*>(slot.buffer.data());
  kernels::rotary_tables(kernels::rotary_frequencies(options_, slot.sequence),
                         {.positions = slot.positions, .rounded_to = pass.stream_dtype}, cos,
                         cos + numel);
}

}  // namespace tessera::model::detail
