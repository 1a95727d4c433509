#pragma once
/// What one collective call is, as a value that all ranks can compare and every message can name.

#include <cstdint>
#include <string>

#include "tessera/comm/collectives.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::comm::detail {

enum class Kind : std::uint32_t {
  broadcast,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  scatter,
  gather,
  barrier,
  allocate
};
char const* name_of(Kind kind);

struct Operation {
  Kind kind = Kind::barrier;
  Dtype dtype = Dtype::uint8;  ///< on the wire
  ReduceOp op = ReduceOp::sum;
  int root = -1;  ///< -1: none
  std::int64_t numel =
      0;  ///< of the data (broadcast, all_reduce, reduce), or of one rank's block (the others)
  std::int64_t stride = 0;  ///< of blocks
  std::int64_t offset = 0;
  std::uint64_t sequence = 0;  ///< number of the call on its Collectives object, from 1

  std::size_t bytes() const { return static_cast<std::size_t>(numel) * size_of(dtype); }
  std::size_t element() const { return size_of(dtype); }
  bool operator==(Operation const&) const = default;
};

/// "reduce_scatter number 17 (1024 bf16 elements, 2048 bytes a rank)"
std::string describe(Operation const& operation);

/// Elements [begin, begin + count) of n that rank r of N reduces or sends in an all-reduce: as
/// equal as can be, lower ranks first.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
constexpr Slice slice_of(std::int64_t numel, int ranks, int rank) {
  std::int64_t const each = numel / ranks, more = numel % ranks;
  return {rank * each + (rank < more ? rank : more), each + (rank < more ? 1 : 0)};
}

}  // namespace tessera::comm::detail
