#pragma once
/// Owned memory. Every allocation has a name, a purpose and a memory space, and is counted by the
/// memory tracker of the process. Host memory is placed on NUMA nodes by mbind(2) and
/// set_mempolicy(2) of Linux.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tessera/memory/memory_tracker.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::memory {

/// Move-only owner of zeroed memory. Host memory is aligned to 64 bytes, or to 2 MiB with huge
/// pages when large; device memory to 256 bytes. Device memory is zeroed and freed in stream order:
/// see detail/device_memory.hpp.
class Buffer {
 public:
  Buffer() = default;
  /// @throws OutOfMemoryError naming the buffer, its bytes and the free bytes of the node, or the
  /// bytes that this process holds on the device by purpose
  Buffer(std::string name, Purpose purpose, std::size_t bytes,
         MemorySpace space = MemorySpace::host);
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  std::string const& name() const { return name_; }
  MemorySpace space() const { return space_; }
  /// View that starts @p offset_bytes after the start of the buffer.
  TensorView view(Dtype dtype, std::initializer_list<std::int64_t> dims,
                  std::size_t offset_bytes = 0) const;
  /// Gives every page of host memory its place now and not at its first use; keeps what it holds,
  /// other threads may use it meanwhile. @return false: the system cannot (Linux before 5.14)
  bool populate() const noexcept;

 private:
  void release() noexcept;
  std::string name_;
  Purpose purpose_ = Purpose::workspace;
  MemorySpace space_ = MemorySpace::host;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool planned_ = false;  ///< made in the scope of a BufferPlanning
};

/// Stack allocator for activations and workspaces: the forward pass allocates, the backward pass
/// rolls back to a mark. The arena grows by chunks in the first step; later steps make no system
/// allocation.
class Arena {
 public:
  using Mark = std::size_t;
  Arena(std::string name, Purpose purpose, MemorySpace space = MemorySpace::host);
  ~Arena();
  Arena(Arena&&) noexcept;

  /// Uninitialized memory, aligned to 64 bytes (256 on the device).
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

/// Host memory, pinned when @p space says so and the system grants it; else pageable, with a
/// warning.
Buffer make_host_buffer(std::string const& name, Purpose purpose, std::size_t bytes,
                        MemorySpace space);

/// Buffers in host memory, pinned or not, that are made from now on prefer @p nodes (as the system
/// numbers them); when these are full, their pages come from other nodes. Empty: the system places
/// each page next to the core that first writes it.
/// @return false when the system does not support it; nothing changes then
bool use_numa_nodes(std::vector<int> const& nodes);
/// The nodes of the last successful call of use_numa_nodes().
std::vector<int> numa_nodes();

}  // namespace tessera::memory
