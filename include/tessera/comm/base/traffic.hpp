#pragma once
/// Bytes that this process has sent in collective operations, inside its node and to other nodes.

#include <cstdint>
#include <string>

namespace tessera::comm {

/// Counted in the call of an operation, as recording.hpp does: what a rank must send to each other
/// rank of the group when all exchange their parts directly. An operation in two levels counts as
/// the operations inside the node and between the nodes that it is made of. Operations on a device
/// through host memory (DeviceTransport::staged) count when they run.
struct Traffic {
  std::uint64_t intra_node = 0;  ///< to ranks of this rank's node
  std::uint64_t inter_node = 0;  ///< to ranks of other nodes
  std::uint64_t nccl = 0;        ///< by NCCL, which chooses its way through the nodes

  std::uint64_t total() const { return intra_node + inter_node + nccl; }
  bool operator==(Traffic const&) const = default;
};
Traffic operator-(Traffic const& now, Traffic const& before);

/// Bytes that cross a link per byte of the message, for @p ranks ranks (as NCCL's tests and
/// DeepSpeed's comms logger count the bus bandwidth).
double bus_factor(std::string const& operation, double ranks);

/// Returns the traffic of this process since it began. Any thread may call it.
Traffic traffic_of_process();

}  // namespace tessera::comm
