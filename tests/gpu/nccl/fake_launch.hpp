#pragma once
/// What a fake communicator carries out on a stream: the calls of one group, in order, with all
/// ranks.

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exchange.hpp"

namespace tessera::test {

enum class NcclKind : int {
  broadcast,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  send,
  receive
};
std::string name_of(NcclKind kind);

struct NcclCall {
  NcclKind kind;
  void const* send;
  void* receive;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  ///< root, or the other end
  /// Where the operands begin in symmetric windows: the window's number and the offset, which all
  /// ranks must have in common. -1: in no window, not used on this rank, or in place
  std::int64_t send_at = -1, receive_at = -1;
};
std::size_t size_of(ncclDataType_t type);

/// What a call reads and writes on a rank.
struct NcclRange {
  std::byte const* begin = nullptr;
  std::size_t bytes = 0;
};
NcclRange read_by(NcclCall const& call, int ranks, int rank);
NcclRange written_by(NcclCall const& call, int ranks, int rank);
/// Whether the output may lie where it does, seen from the input: apart, or exactly in place.
bool placed_well(NcclCall const& call, int ranks, int rank);
bool overlap(NcclRange a, NcclRange b);

struct NcclLaunch {
  std::vector<NcclCall> calls;
  std::uint64_t number = 0;  ///< among all launches of this process on this family of communicators
  bool registered = false;   ///< whether all memory that it touches is registered
};

/// Blocks until done or given up. @param breach is told where ranks do not fit together; then
/// nothing more is done
void carry_out(NcclLaunch const& launch, Exchange& exchange, std::atomic<bool> const& give_up,
               std::function<void(std::string)> const& breach);

}  // namespace tessera::test
