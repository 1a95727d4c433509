#pragma once
/// One collective call as a value: ranks compare it, and messages describe it.

#include <array>
#include <cstdint>
#include <string>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/rank.hpp"

namespace tessera::comm::detail {

/// A rank of a group and the number of its ranks.
struct Group {
  int rank = 0;
  int size = 1;
  std::string name = {};  ///< empty: all ranks of the job
};

enum class Kind : std::uint32_t {
  broadcast,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  scatter,
  gather,
  all_to_all,
  all_to_all_v,
  send,
  receive,
  split,
  barrier,
  allocate
};
char const* name_of(Kind kind);

struct Operation {
  Kind kind = Kind::barrier;
  Dtype dtype = Dtype::uint8;  ///< on the wire
  ReduceOp op = ReduceOp::sum;
  int root = -1;  ///< -1: none; the peer of a send or receive
  /// Elements of the data (broadcast, all_reduce, reduce), or of one rank's shard (the others).
  std::int64_t numel = 0;
  std::int64_t stride = 0;  ///< stride of strided shards, in elements
  std::int64_t offset = 0;  ///< offset of strided shards, in elements
  /// Number of the call on its Collectives object, from 1. Sends and receives count separately.
  std::uint64_t sequence = 0;
  std::array<char, 24> group{};  ///< name of the group, zero-terminated

  std::size_t bytes() const { return static_cast<std::size_t>(numel) * size_of(dtype); }
  std::size_t element_bytes() const { return size_of(dtype); }
  bool operator==(Operation const&) const = default;
};

/// "reduce_scatter number 17 (1024 bf16 elements, 2048 bytes per rank)"
std::string describe(Operation const& operation);

/// True when the shards of all ranks are disjoint, in order and within @p numel elements.
bool shards_fit(StridedShards const& shards, int ranks, std::int64_t numel);
/// "the shards of 4 ranks (offset 0 + count 10 within stride 10)"
std::string describe(StridedShards const& shards, int ranks);

/// Throws InternalError unless there is one part per rank and all are within @p numel elements.
void require_parts(Operation const& operation, Parts const& parts, int ranks, std::int64_t numel);

/// Elements [begin, begin + count) that one rank reduces in an all-reduce. Slices are as equal as
/// possible; the lower ranks have the larger ones.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
constexpr Slice slice_of(std::int64_t numel, int ranks, Rank rank) {
  int const r = value(rank);
  std::int64_t const each = numel / ranks, more = numel % ranks;
  return {r * each + (r < more ? r : more), each + (r < more ? 1 : 0)};
}

}  // namespace tessera::comm::detail
