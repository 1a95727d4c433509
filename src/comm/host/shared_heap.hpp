#pragma once
/// The shared allocations of a rank: its own memory and its mappings of the peers' memory of the
/// same collective allocation.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/shared_memory.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::comm::detail {

/// Made by one collective call, so that its number is the same on every rank.
struct SharedAllocation {
  std::int64_t number = 0;
  Mapping own;
  std::vector<Mapping> peers;  ///< by rank, read-only; not mapped for this rank
};

class SharedHeap : public std::enable_shared_from_this<SharedHeap> {
 public:
  /// Numbers the allocation and counts it in the memory tracker. The returned owner frees it.
  std::shared_ptr<void> add(SharedAllocation allocation, std::string name, memory::Purpose purpose);

  struct Position {
    std::int64_t number = 0;
    std::uint64_t offset_bytes = 0;
  };
  /// The allocation that contains @p data, if any, and the offset in it.
  std::optional<Position> find(std::byte const* data) const;
  /// The address of the same position in the memory of @p rank.
  std::byte const* peer_address(int rank, Position position) const;

 private:
  void release(std::byte const* data, std::string const& name, memory::Purpose purpose) noexcept;

  mutable std::mutex mutex_;
  std::map<std::byte const*, SharedAllocation> by_address_;
  std::map<std::int64_t, std::byte const*> by_number_;
  std::int64_t next_number_ = 0;
};

}  // namespace tessera::comm::detail
