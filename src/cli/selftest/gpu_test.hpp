#pragma once
/// Tests the device of every rank and the links between them; the measuring part of
/// `tessera selftest --gpus`.

#include <optional>
#include <string>
#include <vector>

#include "selftest/gpu_test_report.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/topology/node_index.hpp"

namespace tessera::cli {

struct GpuTest {
  memory::Queue& compute;  ///< of this rank's device
  comm::Collectives& comm;
  std::vector<topology::NodeIndex> nodes;  ///< of every rank
  std::string host;                        ///< of this rank
};

/// Pairs of ranks that exchange messages, in rounds: a rank is in one pair of a round at most.
/// First all pairs inside nodes, of all nodes at once; then the ranks of one place in neighboring
/// nodes, all places at once.
std::vector<std::vector<GpuLink>> link_rounds(std::vector<topology::NodeIndex> const& nodes);

/// Writes and reads back a quarter of the free memory (at most 16 GiB), multiplies and compares
/// with double precision, copies to and from the host; then messages between pairs of ranks, then
/// all-gather and reduce-scatter of all ranks. Takes seconds. Collective; rank 0 has the report.
/// @throws OutOfMemoryError, PeerLostError
std::optional<GpuReport> test_gpus(GpuTest const& where);

}  // namespace tessera::cli
