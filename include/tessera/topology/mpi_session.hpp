#pragma once
/// Starting and ending MPI, and what it says about where this rank runs. No MPI type appears in
/// this header.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace tessera::topology {

/// A communicator owned elsewhere, as an opaque handle (MPI_Comm stored by value).
struct CommHandle {
  void* raw = nullptr;
};

struct RankInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< among the ranks of this node, from MPI_Comm_split_type(SHARED)
  int local_size = 1;
  int node = 0;  ///< index of the node, by lowest rank
  int node_count = 1;
  std::string host;
};

class HeartbeatMonitor;

/// MPI from first to last call of the process. Requests MPI_THREAD_SERIALIZED and checks that it
/// was granted.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;

  RankInfo const& info() const { return info_; }
  CommHandle world() const;
  CommHandle node() const;  ///< the ranks of this node
  /// Host name of every rank, gathered once at start.
  std::vector<std::string> const& hosts() const { return hosts_; }
  /// From here on a node that stays silent for @p patience counts as lost (heartbeat_monitor.hpp);
  /// 0: no such watch. Collective.
  void start_heartbeat_monitor(std::chrono::milliseconds patience);
  /// The first rank of a lost node, as far as this rank's node knows; -1: none, or this rank does
  /// not lead its node.
  int rank_of_lost_node() const;
  std::chrono::milliseconds node_patience() const { return patience_; }
  /// Rank 0's text on every rank.
  std::string broadcast(std::string text) const;
  /// Whether every rank comes here within @p deadline: ranks that fail together can then end in
  /// order, without abort().
  bool all_arrive(std::chrono::milliseconds deadline);
  /// Ends all ranks with this exit code; does not return.
  [[noreturn]] static void abort(int exit_code);
  /// After a peer was lost MPI_Finalize could wait for it for ever: the session then ends without
  /// it.
  static void leave_without_finalize();
  /// "Open MPI 4.1.4", for --version and logs.
  static std::string library_version();
  /// What MPI granted: "MPI_THREAD_SERIALIZED".
  static std::string thread_level();

 private:
  RankInfo info_;
  CommHandle node_;
  std::vector<std::string> hosts_;
  std::vector<int> leaders_;  ///< lowest rank of each node
  std::unique_ptr<HeartbeatMonitor> watch_;
  std::chrono::milliseconds patience_{0};
};

/// Cores this rank may use for kernels: share_of_cores() (cores.hpp) of what the ranks of the node
/// say. Collective over the node.
int cores_of_rank(MpiSession const& session);

}  // namespace tessera::topology
