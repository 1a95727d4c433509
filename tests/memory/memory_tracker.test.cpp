#include "tessera/memory/memory_tracker.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::memory {
namespace {

std::size_t bytes_of(std::string const& name) {
  std::size_t sum = 0;
  for (auto const& entry : MemoryTracker::of_process().entries())
    if (entry.name == name) sum += entry.bytes;
  return sum;
}

TEST(MemoryTracker, AddsUpEntriesOfOnePurposeAndName) {
  auto& tracker = MemoryTracker::of_process();
  auto const before = tracker.current(Purpose::gradients), total = tracker.current_total();
  tracker.add(Purpose::gradients, "test buffer", 100);
  tracker.add(Purpose::gradients, "test buffer", 20);
  tracker.add(Purpose::data, "test buffer", 3);
  EXPECT_EQ(tracker.current(Purpose::gradients), before + 120);
  EXPECT_EQ(tracker.current_total(), total + 123);
  EXPECT_EQ(bytes_of("test buffer"), 123u);
  auto const entries = tracker.entries();
  EXPECT_EQ(std::count_if(entries.begin(), entries.end(),
                          [](auto const& e) { return e.name == "test buffer"; }),
            2)
      << "one entry per purpose";
  tracker.remove(Purpose::gradients, "test buffer", 120);
  tracker.remove(Purpose::data, "test buffer", 3);
  EXPECT_EQ(bytes_of("test buffer"), 0u);
  EXPECT_EQ(tracker.current_total(), total);
}

TEST(MemoryTracker, KeepsThePeak) {
  auto& tracker = MemoryTracker::of_process();
  auto const peak = std::max(tracker.peak(Purpose::activations), tracker.current_total());
  tracker.add(Purpose::activations, "large", peak + 1000);
  tracker.remove(Purpose::activations, "large", peak + 1000);
  EXPECT_GE(tracker.peak(Purpose::activations), peak + 1000);
  EXPECT_GE(tracker.peak_total(), peak + 1000);
  EXPECT_EQ(tracker.current(Purpose::activations), 0u);
}

TEST(MemoryTracker, TellsThePeakSinceItWasAskedLast) {
  auto& tracker = MemoryTracker::of_process();
  (void)take_recent_peak();
  auto const before = tracker.current_total(), whole = tracker.peak_total();
  tracker.add(Purpose::workspace, "recent", 500);
  tracker.remove(Purpose::workspace, "recent", 500);
  EXPECT_EQ(take_recent_peak(), before + 500);
  EXPECT_EQ(take_recent_peak(), before);
  EXPECT_GE(tracker.peak_total(), std::max(whole, before + 500));
}

TEST(MemoryTracker, CountsHostAndDeviceSeparately) {
  EXPECT_EQ(&MemoryTracker::of(MemorySpace::host), &MemoryTracker::of_process());
  EXPECT_EQ(&MemoryTracker::of(MemorySpace::pinned), &MemoryTracker::of_process());
  EXPECT_EQ(&MemoryTracker::of(MemorySpace::device), &MemoryTracker::of_device());
  EXPECT_NE(&MemoryTracker::of_device(), &MemoryTracker::of_process());
  EXPECT_EQ(name_of(Purpose::master_weights), "master_weights");
}

}  // namespace
}  // namespace tessera::memory
