#pragma once
/// Accounting of the memory that this process has allocated.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::memory {

/// Memory space. `device` and `pinned` (page-locked host memory, which a device copies at full
/// speed) need a device.
enum class MemorySpace { device, host, pinned };

/// Purpose of an allocation. The first four are the model states of the ZeRO paper.
enum class Purpose {
  weights,
  gradients,
  master_weights,
  optimizer_state,
  communication,
  activations,
  workspace,
  data
};
inline constexpr int purpose_count = static_cast<int>(Purpose::data) + 1;
std::string_view name_of(Purpose purpose);

/// Bytes allocated under one purpose and name.
struct TrackedMemory {
  Purpose purpose;
  std::string name;
  std::size_t bytes;
};

/// Current and peak bytes of this process by purpose. One tracker counts host memory, one device
/// memory. Allocations of the same purpose and name add up to one entry.
class MemoryTracker {
 public:
  static MemoryTracker& of_process();  ///< host memory, pageable and pinned
  static MemoryTracker& of_device();
  static MemoryTracker& of(MemorySpace space) {
    return space == MemorySpace::device ? of_device() : of_process();
  }
  void add(Purpose purpose, std::string const& name, std::size_t bytes);
  void remove(Purpose purpose, std::string const& name, std::size_t bytes);
  std::size_t current(Purpose purpose) const;
  std::size_t peak(Purpose purpose) const;
  std::size_t current_total() const;
  std::size_t peak_total() const;
  std::vector<TrackedMemory> entries() const;

 private:
  MemoryTracker();
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The most bytes that MemoryTracker::of_process() has counted since the last call, or since the
/// start. The peaks of the tracker stay. @pre no other thread allocates meanwhile
std::size_t take_recent_peak();

}  // namespace tessera::memory
