#pragma once
/// Which nodes of an allocation the next attempt of a run uses. Starts and asks nothing.

#include <chrono>
#include <string>
#include <vector>

#include "launch/launch_plan.hpp"

namespace tessera::cli {

class NodePool {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// @param spares  nodes that are used only in place of others
  /// @throws UsageError when the nodes have different numbers of slots, or there are only spares
  NodePool(std::vector<HostSlots> const& nodes, int spares);

  int ranks_per_node() const { return static_cast<int>(nodes_.front().host.slots.size()); }
  int wanted_nodes() const { return wanted_; }  ///< nodes of an undisturbed run

  /// The nodes of the next attempt, in the order of the allocation: at most the wanted number,
  /// those with the fewest failures. A node that had the last three failures is left out for an
  /// hour if there is another one.
  std::vector<HostSlots> choose(Time now) const;

  /// A rank failed on the node. Unknown names are ignored.
  void rank_failed(std::string const& host, Time now);
  /// The node does not answer. It is left out until found().
  void lost(std::string const& host);
  void found(std::string const& host);
  std::vector<std::string> lost_hosts() const;
  /// The node is not used again.
  void exclude(std::string const& host);

 private:
  struct Node {
    HostSlots host;
    int failures = 0, in_a_row = 0;
    Time last_failure{};
    bool is_lost = false, is_excluded = false;
  };
  Node* find(std::string const& host);

  std::vector<Node> nodes_;
  int wanted_;
};

}  // namespace tessera::cli
