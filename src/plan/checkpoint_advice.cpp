#include "tessera/plan/checkpoint_advice.hpp"

#include <cmath>

namespace tessera::plan {

std::optional<CheckpointAdvice> checkpoint_advice(double checkpoint_bytes, Cluster const& cluster,
                                                  MachineProfile const& machine) {
  if (machine.save_bandwidth <= 0.0) return std::nullopt;
  CheckpointAdvice out;
  out.save_seconds = checkpoint_bytes / (machine.save_bandwidth * cluster.nodes);
  if (machine.node_failure_hours <= 0.0) return out;
  double const between_failures = 3600.0 * machine.node_failure_hours / cluster.nodes;
  out.interval = std::sqrt(2.0 * out.save_seconds * between_failures);
  out.lost = out.save_seconds / out.interval + out.interval / (2.0 * between_failures);
  return out;
}

}  // namespace tessera::plan
