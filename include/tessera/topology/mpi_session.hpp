#pragma once
/// MPI initialization and finalization, and where this rank runs. This header names no MPI type.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tessera/topology/rank_groups.hpp"

namespace tessera::topology {

struct CoreFacts;

/// A non-owning communicator handle: an MPI_Comm stored by value.
struct CommHandle {
  void* raw = nullptr;
};

/// This rank, and where it runs.
struct RankInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< among the ranks of this node, from MPI_Comm_split_type(SHARED)
  int local_size = 1;
  NodeIndex node = first_node;
  int node_count = 1;
  std::string host;
};

class HeartbeatMonitor;

/// Initializes MPI with MPI_THREAD_SERIALIZED and finalizes it.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;

  RankInfo const& info() const { return info_; }
  CommHandle world() const;
  CommHandle node() const;  ///< the ranks of this node
  /// Host name of every rank.
  std::vector<std::string> const& hosts() const { return hosts_; }
  /// Node of every rank. TESSERA_SIMULATED_NODES="2,2" makes several nodes of one machine, for
  /// tests.
  std::vector<NodeIndex> const& nodes() const { return nodes_; }
  /// Starts the heartbeat monitor: a node without a heartbeat for @p timeout counts as lost
  /// (heartbeat_monitor.hpp). 0: no monitor. Collective.
  void start_heartbeat_monitor(std::chrono::milliseconds timeout);
  /// The lowest rank of a lost node, as known on this rank; -1: none, or this rank is not the first
  /// of its node.
  int rank_of_lost_node() const;
  std::chrono::milliseconds node_timeout() const { return node_timeout_; }
  /// ranks_have_own_cores() of this node. False where simulated nodes share a machine.
  bool ranks_have_own_cores() const { return ranks_have_own_cores_; }
  /// Rank 0's text on every rank.
  std::string broadcast(std::string text) const;
  /// Whether all ranks call this within @p deadline. Ranks that fail together can then exit without
  /// abort().
  bool all_arrive(std::chrono::milliseconds deadline);
  /// Ends all ranks with this exit code (MPI_Abort).
  [[noreturn]] static void abort(int exit_code);
  /// Skips MPI_Finalize in the destructor: after the loss of a rank it could block forever.
  static void leave_without_finalize();
  /// "Open MPI 4.1.4", for --version and logs.
  static std::string library_version();
  /// The granted thread level, such as "MPI_THREAD_SERIALIZED".
  static std::string thread_level();

 private:
  CommHandle split_by_node() const;
  void number_nodes();
  void gather_hosts();

  RankInfo info_;
  CommHandle node_;
  std::vector<std::string> hosts_;
  std::vector<NodeIndex> nodes_;
  std::vector<int> leaders_;  ///< lowest rank of each node
  std::unique_ptr<HeartbeatMonitor> heartbeat_monitor_;
  std::chrono::milliseconds node_timeout_{0};
  bool ranks_have_own_cores_ = false;
};

/// The cores of the ranks of this node, see cores.hpp. Collective over the node.
CoreFacts core_facts(MpiSession const& session);
/// Number of cores for this rank's kernels: share_of_cores() of cores.hpp. Collective over the
/// node.
int cores_of_rank(MpiSession const& session);

}  // namespace tessera::topology
