#include "optimizer/state_shards.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::zero::detail {
namespace {

/// The state with the largest magnitudes of the chunks of a quantized state.
std::size_t absmax_of(StateTable const& states, std::size_t state) {
  auto const name = optim::absmax_state(states.spec(state).name).name;
  std::size_t k = 0;
  while (k < states.count() && states.spec(k).name != name) ++k;
  TESSERA_EXPECT(k < states.count(), "a quantized state has no state ", name);
  return k;
}

}  // namespace

bool StateShards::is_copied(std::size_t state, UnitIndex unit) const {
  return states_.spec(state).dtype != Dtype::fp32 ||
         states_.storage(unit).space(state) == memory::MemorySpace::device;
}

/// The last units are those on a device, if some units are there and others in host memory.
bool StateShards::has_copies(std::size_t state) const {
  return is_copied(state, UnitIndex(static_cast<int>(plan(state).units().size()) - 1));
}

bool StateShards::are_copies() const {
  for (std::size_t k = 0; k < states_.count(); ++k)
    if (!is_copied(k, first_unit)) return false;
  return true;
}

void StateShards::release() {
  if (are_copies() || states_.placement().space != memory::MemorySpace::host) return;
  for (auto& copy : copies_) copy = {};
}

std::vector<float*> StateShards::host(std::size_t state) {
  auto& copy = copies_[state];
  if (has_copies(state) && copy.bytes() == 0)
    copy = {"host copy of a state", memory::Purpose::data,
            static_cast<std::size_t>(plan(state).partition_numel()) * sizeof(float),
            memory::MemorySpace::host};
  std::vector<float*> out;
  for (UnitIndex u = first_unit; u < plan(state).end_unit(); ++u)
    out.push_back(is_copied(state, u) ? static_cast<float*>(copy.data()) +
                                            plan(state).unit(u).partition_offset.value()
                                      : static_cast<float*>(states_.shard(state, u)));
  return out;
}

void StateShards::copy(std::size_t state, ShardDirection direction) {
  if (!has_copies(state)) return;
  if (states_.quantized(state)) return copy_quantized(state, direction);
  auto const shards = host(state);
  std::vector<ShardCopy> copies;
  for (UnitIndex u = first_unit; u < plan(state).end_unit(); ++u)
    if (is_copied(state, u))
      copies.push_back(
          {shards[position(u)],
           {states_.shard(state, u), states_.spec(state).dtype, {plan(state).unit(u).shard_numel}},
           states_.storage(u).space(state)});
  copy_shards(queue_, copies, direction);
}

void StateShards::copy_quantized(std::size_t state, ShardDirection direction) {
  auto& codes = *states_.quantized(state);
  auto& queue = *states_.placement().queue;
  auto const shards = host(state);
  std::size_t const absmax = absmax_of(states_, state);
  if (direction == ShardDirection::to_state) return codes.write(queue, host(absmax), shards);
  copy(absmax, direction);
  codes.read(queue, host(absmax), shards);
}

}  // namespace tessera::zero::detail
