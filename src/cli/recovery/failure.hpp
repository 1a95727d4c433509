#pragma once
/// Why an attempt of a run ended, from what is left of it: the exit code and the messages of the
/// launcher, and status.json.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/launch_plan.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::cli {

/// How an attempt ended.
struct AttemptEnd {
  int launcher_code = 0;             ///< exit code; 128 + signal when it was killed
  std::optional<ConfigTree> status;  ///< status.json, if this attempt has written it
  std::string launcher_messages;     ///< the last part of its standard error
  std::string ended_because;         ///< the supervisor ended it for this reason; else empty
  std::int64_t steps = 0;            ///< steps that this attempt has completed
  std::vector<HostSlots> nodes;      ///< its nodes; ranks are numbered in their order
};

struct Failure {
  std::string kind;    ///< what happened, without rank, node and step: "killed by signal 9"
  std::string reason;  ///< what happened, with all that is known
  int exit_code = 0;
  int rank = -1;
  std::string host;            ///< the node that failed; empty: unknown
  bool node_lost = false;      ///< the node does not answer, rather than one of its ranks
  bool recoverable = true;     ///< false: the next attempt would fail in the same way
  bool excludes_node = false;  ///< the node computes wrong results: it is not used again
  /// A node with a rank that was slower than the others when the attempt ended.
  struct SlowNode {
    std::string host;
    double factor = 1.0;
  };
  std::vector<SlowNode> slow_nodes{};
};

/// Nothing: the run is done or was stopped, and its exit code stands.
std::optional<Failure> failure_of(AttemptEnd const& end);

/// The exit code that status.json records; without one that of the launcher.
int exit_code_of(AttemptEnd const& end);

}  // namespace tessera::cli
