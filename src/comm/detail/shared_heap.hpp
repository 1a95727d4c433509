#pragma once
/// The shared allocations of a rank: its own memory and its view of the peers' memory of the same
/// allocation.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "detail/shared_memory.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::comm::detail {

/// Made by the same collective call on every rank, so that its number is the same on all.
struct SharedAllocation {
  std::int64_t number = 0;
  Mapping own;
  std::vector<Mapping> peers;  ///< by rank, read-only; empty for this rank
};

class SharedHeap : public std::enable_shared_from_this<SharedHeap> {
 public:
  /// Numbers the allocation, counts it in the memory tracker until the returned owner lets it go.
  std::shared_ptr<void> keep(SharedAllocation allocation, std::string name,
                             memory::Purpose purpose);

  struct Position {
    std::int64_t number = 0;
    std::uint64_t offset = 0;
  };
  /// Where @p data lies, when in an allocation.
  std::optional<Position> find(std::byte const* data) const;
  /// The same place in the memory of @p rank.
  std::byte const* of_rank(int rank, Position position) const;

 private:
  void release(std::byte const* data, std::string const& name, memory::Purpose purpose) noexcept;

  mutable std::mutex mutex_;
  std::map<std::byte const*, SharedAllocation> by_address_;
  std::map<std::int64_t, std::byte const*> by_number_;
  std::int64_t next_number_ = 0;
};

}  // namespace tessera::comm::detail
