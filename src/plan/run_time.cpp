#include "tessera/plan/run_time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tessera/core/error.hpp"

namespace tessera::plan {

double expected_duration(RunPlan const& p) {
  TESSERA_EXPECT(p.interval > 0.0);
  if (p.between_failures <= 0.0) return p.work * (1.0 + p.save / p.interval);
  double const m = p.between_failures;
  return m * std::exp(p.restart / m) * std::expm1((p.interval + p.save) / m) * p.work / p.interval;
}

SimulatedRun simulate_run(RunPlan const& p, std::uint64_t seed) {
  TESSERA_EXPECT(p.interval > 0.0);
  std::mt19937_64 random(seed);
  // not std::exponential_distribution, whose numbers differ between libraries
  auto const draw = [&] {
    if (p.between_failures <= 0.0) return std::numeric_limits<double>::max();
    double const uniform = (static_cast<double>(random() >> 11) + 0.5) * 0x1.0p-53;
    return -p.between_failures * std::log(uniform);
  };
  SimulatedRun out;
  double saved = 0.0;  // work in the last complete save
  double failure = draw();
  bool restarts = false;
  while (saved < p.work) {
    double const segment = std::min(p.interval, p.work - saved);
    bool const is_last = saved + segment >= p.work;
    double const needed = (restarts ? p.restart : 0.0) + segment + p.save * segment / p.interval;
    if (out.seconds + needed <= failure) {
      out.seconds += needed;
      saved = is_last ? p.work : saved + segment;
      ++out.saves;
      restarts = false;
      continue;
    }
    out.seconds = failure;
    failure += draw();
    ++out.failures;
    restarts = true;
  }
  return out;
}

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
