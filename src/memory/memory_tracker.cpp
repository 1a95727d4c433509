#include "tessera/memory/memory_tracker.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace tessera::memory {
namespace {
std::atomic<std::size_t> recent_peak{0};  ///< recent peak of host memory
}  // namespace

std::string_view name_of(Purpose purpose) {
  static constexpr char const* names[purpose_count] = {
      "weights",       "gradients",   "master_weights", "optimizer_state",
      "communication", "activations", "workspace",      "data"};
  return names[static_cast<std::size_t>(purpose)];
}

struct MemoryTracker::Impl {
  mutable std::mutex mutex;
  std::size_t current[purpose_count] = {}, peak[purpose_count] = {}, total = 0, peak_total = 0;
  std::map<std::pair<Purpose, std::string>, std::size_t> by_name;
};

MemoryTracker::MemoryTracker() : impl_(std::make_shared<Impl>()) {}
MemoryTracker& MemoryTracker::of_process() {
  static MemoryTracker& tracker = *new MemoryTracker;  // outlives every static owner of memory
  return tracker;
}
MemoryTracker& MemoryTracker::of_device() {
  static MemoryTracker& tracker = *new MemoryTracker;
  return tracker;
}
void MemoryTracker::add(Purpose purpose, std::string const& name, std::size_t bytes) {
  std::lock_guard lock(impl_->mutex);
  auto const p = static_cast<std::size_t>(purpose);
  impl_->current[p] += bytes;
  impl_->peak[p] = std::max(impl_->peak[p], impl_->current[p]);
  impl_->total += bytes;
  impl_->peak_total = std::max(impl_->peak_total, impl_->total);
  if (this == &of_process()) recent_peak = std::max(recent_peak.load(), impl_->total);
  impl_->by_name[{purpose, name}] += bytes;
}
void MemoryTracker::remove(Purpose purpose, std::string const& name, std::size_t bytes) {
  std::lock_guard lock(impl_->mutex);
  impl_->current[static_cast<std::size_t>(purpose)] -= bytes;
  impl_->total -= bytes;
  auto const found = impl_->by_name.find({purpose, name});
  if (found != impl_->by_name.end() && (found->second -= bytes) == 0) impl_->by_name.erase(found);
}
std::size_t MemoryTracker::current(Purpose purpose) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->current[static_cast<std::size_t>(purpose)];
}
std::size_t MemoryTracker::peak(Purpose purpose) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->peak[static_cast<std::size_t>(purpose)];
}
std::size_t MemoryTracker::current_total() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->total;
}
std::size_t MemoryTracker::peak_total() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->peak_total;
}
std::vector<TrackedMemory> MemoryTracker::entries() const {
  std::lock_guard lock(impl_->mutex);
  std::vector<TrackedMemory> out;
  for (auto const& [key, bytes] : impl_->by_name) out.push_back({key.first, key.second, bytes});
  return out;
}

std::size_t take_recent_peak() {
  return recent_peak.exchange(MemoryTracker::of_process().current_total());
}

}  // namespace tessera::memory
