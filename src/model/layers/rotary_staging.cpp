#include "layers/rotary_staging.hpp"

#include <bit>

#include "layers/host_staging.hpp"

namespace tessera::model::detail {

std::int64_t RotaryStaging::frequencies_of(std::int64_t sequence) const {
  if (options_.scaling == kernels::RotaryScaling::longrope)
    return sequence > options_.original_max_positions ? options_.original_max_positions + 1 : 0;
  bool const grows =
      options_.scaling == kernels::RotaryScaling::dynamic && sequence > options_.max_positions;
  return grows ? sequence : 0;
}

kernels::RotaryTables RotaryStaging::stage(PassContext const& pass, std::int64_t positions,
                                           Staging staging) {
  TensorView const cos = pass.arena.allocate(Dtype::fp32, {positions, columns()}),
                   sin = pass.arena.allocate(Dtype::fp32, {positions, columns()});
  if (staging == Staging::planned) return {cos, sin};
  Slot& slot = slot_for(pass, positions);
  auto const* const from = static_cast<float const*>(slot.buffer.data());
  memory::copy(pass.compute, cos.as<float>(), from, cos.bytes());
  memory::copy(pass.compute, sin.as<float>(), from + slot.positions * columns(), sin.bytes());
  slot.copied = pass.compute.record();
  return {cos, sin};
}

RotaryStaging::Slot& RotaryStaging::slot_for(PassContext const& pass, std::int64_t positions) {
  std::int64_t const sequence = frequencies_of(positions);
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
