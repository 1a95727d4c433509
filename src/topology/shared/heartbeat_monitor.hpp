#pragma once
/// Heartbeats between nodes: detect a node that is lost or stopped, which neither MPI nor the ranks
/// of that node report.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/topology/rank_groups.hpp"

namespace tessera::topology {

class MpiSession;

/// One rank per node sends a 32-byte UDP datagram to the first node every timeout / 10 (at most 3
/// s) and gets one back: a star with about 300 datagrams per second at the first node for 1,000
/// nodes. A node counts as lost after `timeout` without a heartbeat, once one was received; the
/// first node sends its index to the others. Datagrams contain a random number that only this job
/// knows. A node that cannot reach the first node by UDP is not monitored. A pause of this process
/// (suspended, in a debugger) extends the timeout.
class HeartbeatMonitor {
 public:
  struct Settings {
    NodeIndex node = first_node;
    int nodes = 1;
    std::uint64_t job = 0;               ///< random, the same on all nodes
    std::vector<std::string> addresses;  ///< addresses of the first node, each "family address"
    int port = 0;                        ///< port of the first node
    std::chrono::milliseconds timeout{30'000};
  };
  /// The socket of the first node, opened before its port is broadcast.
  struct Endpoint {
    int descriptor = -1;
    int port = 0;
  };
  static Endpoint open_endpoint();
  /// Addresses of this machine in the form of Settings; loopback addresses last.
  static std::vector<std::string> own_addresses();

  /// @param endpoint  from open_endpoint() on the first node, otherwise empty; ownership is taken
  HeartbeatMonitor(Settings settings, Endpoint endpoint);
  /// Sends a shutdown datagram, so that the others do not count this node as lost.
  ~HeartbeatMonitor();
  HeartbeatMonitor(HeartbeatMonitor const&) = delete;
  HeartbeatMonitor& operator=(HeartbeatMonitor const&) = delete;

  /// The lost node, if any.
  std::optional<NodeIndex> lost_node() const {
    int const node = lost_.load();
    return node < 0 ? std::nullopt : std::optional(NodeIndex(node));
  }
  /// Number of nodes from which a heartbeat was received.
  int heard() const { return heard_.load(); }
  /// Stops without a shutdown datagram, as when this node is lost. For tests.
  void fall_silent();

 private:
  struct State;
  void run();
  std::unique_ptr<State> state_;
  std::atomic<int> lost_{-1}, heard_{0};
  std::atomic<bool> ends_{false}, silent_{false};
  std::thread thread_;
};

/// The heartbeat monitor of a job. Null for a job of one node, for @p timeout 0, and on ranks other
/// than the first of their node. Collective.
std::unique_ptr<HeartbeatMonitor> start_heartbeat_monitor(MpiSession const& session,
                                                          std::chrono::milliseconds timeout);

}  // namespace tessera::topology
