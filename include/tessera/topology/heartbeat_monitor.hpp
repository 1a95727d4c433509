#pragma once
/// Notices that a whole node has fallen silent (lost, or stopped), which neither MPI nor the node's
/// own ranks can report.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tessera::topology {

class MpiSession;

/// One rank of each node sends a datagram of 32 bytes to the first node every patience / 10 (3 s at
/// most), and gets one back: a star, for 1,000 nodes about 300 small datagrams a second at its
/// centre. Who has been heard and then stays silent for `patience` is lost; the first node tells
/// the others which one. Datagrams carry a number that only this job knows. A node that cannot
/// reach the first one by UDP is not watched. A pause of this process itself (suspended, in a
/// debugger) counts for nobody.
class HeartbeatMonitor {
 public:
  struct Settings {
    int node = 0, nodes = 1;
    std::uint64_t job = 0;               ///< random, the same on all nodes
    std::vector<std::string> addresses;  ///< of the first node, "family address" each
    int port = 0;                        ///< of the first node
    std::chrono::milliseconds patience{30'000};
  };
  /// The first node's socket, opened before the others can learn its port.
  struct Endpoint {
    int descriptor = -1;
    int port = 0;
  };
  static Endpoint open_endpoint();
  /// This machine's addresses in the form of Settings; those of the machine itself (loopback) last.
  static std::vector<std::string> own_addresses();

  /// @param endpoint of open_endpoint() on the first node, else empty; owned from here on
  HeartbeatMonitor(Settings settings, Endpoint endpoint);
  /// Says farewell, so that nobody takes the end for a loss.
  ~HeartbeatMonitor();
  HeartbeatMonitor(HeartbeatMonitor const&) = delete;
  HeartbeatMonitor& operator=(HeartbeatMonitor const&) = delete;

  /// The node that is lost, -1: none.
  int lost_node() const { return lost_.load(); }
  /// How many other nodes this one has heard.
  int heard() const { return heard_.load(); }
  /// Ends the watch without a farewell, as the loss of this node does. For tests.
  void fall_silent();

 private:
  struct State;
  void run();
  std::unique_ptr<State> state_;
  std::atomic<int> lost_{-1}, heard_{0};
  std::atomic<bool> ends_{false}, silent_{false};
  std::thread thread_;
};

/// The watch of a job; nothing on ranks that do not lead their node, for one node, and when @p
/// patience is 0. Collective.
std::unique_ptr<HeartbeatMonitor> start_heartbeat_monitor(MpiSession const& session,
                                                          std::chrono::milliseconds patience);

}  // namespace tessera::topology
