#pragma once
/// Counts the bytes that operations send, for traffic.hpp.

#include <functional>

#include "base/operation.hpp"

namespace tessera::comm::detail {

/// Bytes that @p rank of @p size ranks sends to @p peer, another rank.
/// @param send of an all_to_all_v, else null
std::size_t bytes_to_peer(Operation const& operation, int rank, int size, int peer,
                          Parts const* send);

/// Adds what this rank sends. @param is_on_node tells of a rank of the group whether it runs on
/// this rank's node
void count_traffic(Operation const& operation, Parts const* send, int rank, int size,
                   std::function<bool(int)> const& is_on_node);
/// Adds what this rank sends by NCCL.
void count_nccl_traffic(Operation const& operation, Parts const* send, int rank, int size);

/// While it lives, nothing that this thread calls is counted: it is part of an operation that was
/// counted when it was called.
class CountedOperation {
 public:
  CountedOperation();
  ~CountedOperation();
  CountedOperation(CountedOperation const&) = delete;
  CountedOperation& operator=(CountedOperation const&) = delete;
};

}  // namespace tessera::comm::detail
