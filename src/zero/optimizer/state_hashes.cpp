#include "optimizer/state_hashes.hpp"

#include <algorithm>
#include <utility>

#include "tessera/kernels/elementwise/hash.hpp"
#include "tessera/memory/device.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {
namespace {

constexpr std::size_t differences = 2, numbers = 3;

}  // namespace

StateHashes::StateHashes(UpdateSchedule const& schedule, std::vector<Dtype> dtypes,
                         memory::Queue& compute)
    : steps_(schedule.steps()),
      dtypes_(std::move(dtypes)),
      compute_(compute),
      of_steps_(steps_.size()) {
  for (auto const queue : {UpdateQueue::compute, UpdateQueue::worker})
    if (std::ranges::any_of(steps_, [&](auto const& step) { return step.queue == queue; }))
      hashes_[static_cast<std::size_t>(queue)] =
          memory::Buffer("hashes of states", memory::Purpose::workspace,
                         numbers * steps_.size() * kernels::hash_parts * sizeof(std::uint64_t),
                         queue == UpdateQueue::worker ? memory::MemorySpace::host
                                                      : memory::memory_space_of(compute));
}

std::uint64_t* StateHashes::hash_at(std::size_t number, UpdateStep const& step) const {
  auto const& buffer = hashes_[static_cast<std::size_t>(step.queue)];
  return static_cast<std::uint64_t*>(buffer.data()) +
         (number * steps_.size() + step.index) * kernels::hash_parts;
}

void StateHashes::hash(memory::Queue& queue, std::size_t number, UpdateStep const& step,
                       optim::Segments const& segments) const {
  auto* const to = hash_at(number, step);
  memory::zero(queue, to, kernels::hash_parts * sizeof(std::uint64_t));
  std::uint64_t part = 0;
  auto const add = [&](void const* values, Dtype dtype, std::int64_t numel) {
    if (values) kernels::add_hash(queue, to, {values, dtype, {numel}}, part << 40);
    ++part;
  };
  for (auto const& segment : segments.list) {
    add(segment.master, dtypes_.front(), segment.numel);
    for (std::size_t k = 0; k < segment.states.size(); ++k)
      add(segment.states[k], dtypes_[k + 1], segment.numel);
  }
}

void StateHashes::compare(memory::Queue& queue, UpdateStep const& step,
                          optim::Segments const& segments) {
  auto& of_step = of_steps_[step.index];
  if (!of_step.is_kept) return;
  of_step.kept = 1 - of_step.kept;
  hash(queue, of_step.kept, step, segments);
  kernels::add_differences(queue, hash_at(differences, step), hash_at(0, step), hash_at(1, step));
}

void StateHashes::keep(memory::Queue& queue, UpdateStep const& step,
                       optim::Segments const& segments) {
  auto& of_step = of_steps_[step.index];
  hash(queue, of_step.kept, step, segments);
  of_step.is_kept = true;
}

void StateHashes::forget() { of_steps_.assign(of_steps_.size(), {}); }

/// Reads the differences of all steps and clears them.
std::vector<std::uint64_t> StateHashes::take_differences(UpdateQueue of_queue,
                                                         memory::Queue& queue) {
  auto const& buffer = hashes_[static_cast<std::size_t>(of_queue)];
  std::vector<std::uint64_t> out(buffer.bytes() / numbers / sizeof(std::uint64_t));
  if (out.empty()) return out;
  auto* const from = static_cast<std::uint64_t*>(buffer.data()) + differences * out.size();
  std::size_t const bytes = out.size() * sizeof(std::uint64_t);
  memory::copy(queue, out.data(), from, bytes);
  memory::zero(queue, from, bytes);
  queue.record().wait("the hashes of the states", compute_deadline);
  return out;
}

std::optional<UnitIndex> StateHashes::changed(memory::Queue& worker) {
  auto const of_compute = take_differences(UpdateQueue::compute, compute_),
             of_worker = take_differences(UpdateQueue::worker, worker);
  for (auto const& step : steps_) {
    auto const& all = step.queue == UpdateQueue::worker ? of_worker : of_compute;
    auto const first = all.begin() + static_cast<std::ptrdiff_t>(step.index * kernels::hash_parts);
    if (std::any_of(first, first + kernels::hash_parts, [](auto part) { return part != 0; }))
      return step.range.unit;
  }
  return std::nullopt;
}

}  // namespace tessera::zero::detail
