#pragma once
/// Liveness check of the peers, and the deadline of a wait for them.

#include <chrono>
#include <string>
#include <vector>

#include "base/operation.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::comm::detail {

class Transport;

/// Identifies a process of a node. The kernel reuses process ids; the pair with the start time is
/// unique.
struct ProcessId {
  std::int64_t pid = 0;
  std::int64_t started = 0;  ///< clock ticks since boot, field 22 of /proc/<pid>/stat
  bool operator==(ProcessId const&) const = default;
};
ProcessId this_process();

/// Hosts and processes of the ranks of a group; tells whether those of this node are alive.
class PeerLiveness {
 public:
  struct Peer {
    std::string host;
    ProcessId process;
    bool on_this_node = false;
    int world_rank = -1;  ///< -1: its rank in the group
  };
  /// @param session its heartbeat monitor reports lost nodes; null: nodes are not monitored
  explicit PeerLiveness(std::vector<Peer> peers, topology::MpiSession const* session = nullptr);

  /// False when the process of @p rank has ended or is a zombie. True when this process cannot
  /// observe it.
  bool alive(int rank) const;
  /// @p rank of the group runs on the node of this process.
  bool is_on_this_node(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].on_this_node;
  }
  /// Lowest rank that is not alive, else -1.
  int first_dead() const;
  /// First rank of a node whose heartbeats have stopped, else -1.
  int rank_of_lost_node() const { return session_ ? session_->rank_of_lost_node() : -1; }
  /// Time without a heartbeat after which a node is lost.
  std::chrono::milliseconds heartbeat_timeout() const { return session_->node_timeout(); }
  /// The rank in the job of a rank of the group, for messages and errors. -1 stays -1.
  int world_rank(int rank) const;
  /// "rank 3 (host n017, process 4711)", with the rank in the job
  std::string describe(int rank) const;
  /// Describes a rank in the job, which need not be in the group.
  std::string describe_in_world(int world_rank) const;

 private:
  std::vector<Peer> peers_;
  topology::MpiSession const* session_;
  /// Whether /proc of this process shows the start time that the peer has reported, by rank.
  std::vector<char> observable_;
};

/// One wait of an operation for its peers. The polling loop calls check().
class PeerWait {
 public:
  PeerWait(Operation const& operation, PeerLiveness const& peers, Transport const& transport,
           Deadline deadline);

  /// @param missing lowest rank that has not arrived, -1 when unknown
  /// @throws PeerLostError when that rank (any rank when unknown) has ended, after the deadline, or
  /// when the transport was abandoned
  void check(int missing);
  std::chrono::steady_clock::duration elapsed() const {
    return std::chrono::steady_clock::now() - start_;
  }

 private:
  /// @param rank in the job
  [[noreturn]] void lost(int rank, std::string const& why) const;

  Operation const& operation_;
  PeerLiveness const& peers_;
  Transport const& transport_;
  Deadline deadline_;
  std::chrono::steady_clock::time_point start_, next_check_;
  /// Rank that had ended at the last check. It may have arrived before it ended, so the next check
  /// decides.
  int dead_ = -1;
};

}  // namespace tessera::comm::detail
