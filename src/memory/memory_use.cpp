#include "tessera/memory/memory_use.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::memory {
namespace {

constexpr int purpose_count = static_cast<int>(Purpose::data) + 1;

SpaceUse use_of(MemoryTracker const& tracker) {
  return {tracker.current_total(), tracker.peak_total()};
}

}  // namespace

PinnedCounter& PinnedCounter::of_process() {
  static PinnedCounter counter;
  return counter;
}

void PinnedCounter::add(std::size_t bytes) {
  std::size_t const now = now_ += bytes;
  for (std::size_t peak = peak_; peak < now && !peak_.compare_exchange_weak(peak, now);) {
  }
}

MemoryUse memory_use() {
  return {use_of(MemoryTracker::of_device()), use_of(MemoryTracker::of_process()),
          PinnedCounter::of_process().use()};
}

std::string bytes_by_purpose(MemorySpace space) {
  auto const& tracker = MemoryTracker::of(space);
  std::vector<std::pair<std::size_t, Purpose>> held;
  for (int p = 0; p < purpose_count; ++p)
    if (auto const bytes = tracker.current(static_cast<Purpose>(p)); bytes > 0)
      held.emplace_back(bytes, static_cast<Purpose>(p));
  std::sort(held.rbegin(), held.rend());
  std::string out;
  for (auto const& [bytes, purpose] : held)
    out += concat(out.empty() ? "" : ", ", name_of(purpose), " ",
                  human_bytes(static_cast<std::int64_t>(bytes)));
  return out.empty() ? "nothing" : out;
}

}  // namespace tessera::memory
