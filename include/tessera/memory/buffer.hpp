#pragma once
/// Owned memory. Every allocation has a name, a purpose and a space, and is counted by the
/// process's memory tracker.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/memory/tensor.hpp"

namespace tessera::memory {

/// Where memory lives. `device` and `pinned` (host memory that a device reads and writes at full
/// speed) need a device.
enum class MemorySpace { device, host, pinned };

/// What memory is for; the first four are the model states that the ZeRO formulas speak of.
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
std::string_view name_of(Purpose purpose);

/// Bytes now and at most, by purpose, of this process: one memory tracker for the host's memory,
/// one for the device's. Entries of the same purpose and name add up.
struct TrackedMemory {
  Purpose purpose;
  std::string name;
  std::size_t bytes;
};
class MemoryTracker {
 public:
  static MemoryTracker& of_process();  ///< host memory, pinned or not
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

/// Move-only owner of zeroed, 64-byte-aligned (2 MiB-aligned with huge pages when large;
/// 256-byte-aligned on the device) memory. On the device both the zeroing and the end of its life
/// are in the order of the streams: see detail/device_memory.hpp.
class Buffer {
 public:
  Buffer() = default;
  /// @throws OutOfMemoryError naming the buffer, its bytes and what is left on the node, or what is
  /// held on the device and for what.
  Buffer(std::string name, Purpose purpose, std::size_t bytes,
         MemorySpace space = MemorySpace::host);
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  std::string const& name() const { return name_; }
  MemorySpace space() const { return space_; }
  /// View from byte @p offset.
  TensorView view(Dtype dtype, std::initializer_list<std::int64_t> dims,
                  std::size_t offset = 0) const;

 private:
  void release() noexcept;
  std::string name_;
  Purpose purpose_ = Purpose::workspace;
  MemorySpace space_ = MemorySpace::host;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Stack allocator for activations and workspaces: allocate going forward, roll back to a mark
/// going backward. Grows by whole blocks when first used; a step after the first allocates nothing
/// from the system.
class Arena {
 public:
  using Mark = std::size_t;
  Arena(std::string name, Purpose purpose, MemorySpace space = MemorySpace::host);
  ~Arena();
  Arena(Arena&&) noexcept;

  /// Uninitialised, 64-byte-aligned (256 on the device).
  TensorView allocate(Dtype dtype, std::initializer_list<std::int64_t> dims);
  Mark mark() const;
  /// Frees everything allocated after @p mark.
  void rollback(Mark mark);
  std::size_t capacity() const;
  std::size_t peak() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::memory
