#pragma once
/// The device graphs that a queue keeps for one shape of Queue::run_as_graph(): which one holds the
/// same launches, and which one a new capture replaces.

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "detail/device_api.hpp"
#include "tessera/memory/launch_record.hpp"

namespace tessera::memory::detail {

struct KeptGraph {
  LaunchRecord launches;
  DeviceApi::Graph graph = nullptr;             ///< null until its first capture is launched
  std::shared_ptr<void const> host_calls = {};  ///< what the graph's host functions use
};

/// Keeps one graph. Where launches come back after others, as with buffers that alternate, it keeps
/// one more, up to max_graphs.
class KeptGraphs {
 public:
  static constexpr std::size_t max_graphs = 4;

  /// Whether the next work is likely to have the launches of a kept graph. False where they differ
  /// each time: then comparing before the capture would cost time only.
  bool are_likely_to_match() const {
    return !graphs_.empty() && launches_repeat_ && all_are_recorded_;
  }
  /// The graph with these launches, or null.
  KeptGraph* find(LaunchRecord const& launches);
  /// The work that was compared has launches that are not in its record: it is never compared
  /// again.
  void stop_comparing() { all_are_recorded_ = false; }
  /// The graph that a capture with these launches updates: the one with the same, else a new one or
  /// the one that was used least recently. It matches nothing until the caller sets its record.
  KeptGraph& place_for(LaunchRecord const& launches);

  std::vector<KeptGraph> const& graphs() const { return graphs_; }

 private:
  static constexpr std::size_t remembered = 2 * max_graphs;

  std::vector<KeptGraph> graphs_;  ///< the one that was used most recently first
  std::size_t limit_ = 1;
  std::deque<std::size_t> seen_;  ///< hashes of the latest records that were captured
  bool launches_repeat_ = true, all_are_recorded_ = true;
};

}  // namespace tessera::memory::detail
