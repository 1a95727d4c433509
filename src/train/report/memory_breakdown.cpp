#include "tessera/train/report/memory_breakdown.hpp"

#include <cstdint>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/memory_use.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::train {
namespace {

std::string text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

std::string text(memory::MemoryTracker const& tracker) {
  using enum memory::Purpose;
  std::string out;
  for (auto const purpose : {weights, gradients, master_weights, optimizer_state, communication,
                             activations, workspace, data})
    if (tracker.peak(purpose) > 0)
      out += concat(" ", name_of(purpose), " ", text(tracker.current(purpose)), " / ",
                    text(tracker.peak(purpose)), ",");
  return concat(out, " total ", text(tracker.current_total()), " / ", text(tracker.peak_total()));
}

ConfigTree tree(memory::SpaceUse const& use) {
  return ConfigTree::object()
      .set("now", static_cast<std::int64_t>(use.now))
      .set("peak", static_cast<std::int64_t>(use.peak));
}

}  // namespace

std::string memory_text() {
  std::string const host =
      concat("host memory of rank 0 (now / peak):", text(memory::MemoryTracker::of_process()));
  auto const pinned = memory::memory_use().pinned;
  std::string const part =
      pinned.peak > 0 ? concat(", pinned ", text(pinned.now), " / ", text(pinned.peak)) : "";
  if (memory::Runtime::device() < 0) return host + part;
  return concat("device memory of rank 0 (now / peak):", text(memory::MemoryTracker::of_device()),
                "; ", host, part);
}

ConfigTree memory_tree(std::size_t nvme) {
  auto const use = memory::memory_use();
  auto out = ConfigTree::object();
  if (memory::Runtime::device() >= 0)
    out.set("device", tree(use.device)).set("pinned", tree(use.pinned));
  out.set("host", tree(use.host));
  if (nvme > 0) out.set("nvme", tree({nvme, nvme}));
  return out;
}

}  // namespace tessera::train
