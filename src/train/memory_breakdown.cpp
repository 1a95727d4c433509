#include "tessera/train/memory_breakdown.hpp"

#include <cstdint>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/memory_tracker.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::train {

std::string memory_text() {
  using enum memory::Purpose;
  bool const on_device = memory::Runtime::device() >= 0;
  auto const& tracker = memory::MemoryTracker::of(on_device ? memory::MemorySpace::device
                                                            : memory::MemorySpace::host);
  auto const bytes = [](std::size_t count) {
    return human_bytes(static_cast<std::int64_t>(count));
  };
  std::string out = concat(on_device ? "device" : "host", " memory of rank 0 (now / peak):");
  for (auto const purpose : {weights, gradients, master_weights, optimizer_state, communication,
                             activations, workspace, data})
    if (tracker.peak(purpose) > 0)
      out += concat(" ", name_of(purpose), " ", bytes(tracker.current(purpose)), " / ",
                    bytes(tracker.peak(purpose)), ",");
  return concat(out, " total ", bytes(tracker.current_total()), " / ", bytes(tracker.peak_total()));
}

}  // namespace tessera::train
