#include "tessera/plan/step_time.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

using memory::PlannedWork;
using Kind = PlannedWork::Kind;

constexpr char const* compute_queue = "compute";

double required(double speed, char const* what, MachineProfile const& machine) {
  TESSERA_VALIDATE(speed > 0.0, ConfigError, "the machine profile ", machine.name, " has no ", what,
                   ", which this choice needs");
  return speed;
}

void add(StepTime& sum, PlannedWork const& work, std::string const& queue, double seconds) {
  bool const computes = queue == compute_queue;
  if (work.kind == Kind::collective) sum.collectives += 1.0;
  if (work.kind == Kind::collective)
    sum.communication += seconds;
  else if (work.kind == Kind::update)
    sum.update += seconds;
  else if (!computes)
    sum.transfers += seconds;
  if (computes) sum.compute += seconds;
}

/// The kernels around a product.
double between_products(PlannedWork const& work, MachineProfile const& machine) {
  if (machine.pass_traffic == 0.0) return 0.0;
  return machine.pass_traffic * operand_bytes(work) / machine.memory_bandwidth;
}

}  // namespace

double operand_bytes(PlannedWork const& work) {
  auto const size = static_cast<double>(size_of(work.dtype));
  auto const m = static_cast<double>(work.m), n = static_cast<double>(work.n),
             k = static_cast<double>(work.k);
  return size * (m * n + n * k + m * k - std::min({m * n, n * k, m * k}));
}

double seconds_of(PlannedWork const& work, std::string const& queue, Cluster const& cluster,
                  MachineProfile const& machine) {
  auto const bytes = static_cast<double>(work.bytes);
  bool const computes = queue == compute_queue;
  switch (work.kind) {
    case Kind::wait:
      return 0.0;
    case Kind::product:
      return work.flops / machine.product_speed(work.dtype, work.m, work.n, work.k) /
                 machine.pass_efficiency +
             between_products(work, machine);
    case Kind::attention:
      return work.flops / machine.attention_speed(work.dtype) / machine.pass_efficiency;
    case Kind::update:
      return bytes /
             (computes ? machine.memory_bandwidth
                       : required(machine.host_memory_bandwidth, "host_memory_bandwidth", machine));
    case Kind::copy:
      if (computes) return 2.0 * bytes / machine.memory_bandwidth;
      return machine.host_link.latency +
             bytes / required(machine.host_link.bandwidth, "host_link", machine);
    case Kind::read:
      return bytes / required(machine.drive_read, "drive_read", machine);
    case Kind::write:
      return bytes / required(machine.drive_write, "drive_write", machine);
    case Kind::collective:
      return seconds_of(Collective{work.name, bytes}, cluster_of(cluster, work.group, work.ranks),
                        machine);
  }
  return 0.0;
}

StepTime step_time(train::PlannedSteps const& steps, Cluster const& cluster,
                   MachineProfile const& machine) {
  return step_time(steps, cluster, machine, {{.ranks = cluster.ranks()}});
}

StepTime step_time(train::PlannedSteps const& steps, Cluster const& cluster,
                   MachineProfile const& machine, std::vector<RankClass> const& classes) {
  std::vector<double> seconds(steps.work.size());
  StepTime out;
  for (std::size_t i = 0; i < steps.work.size(); ++i) {
    auto const& queue = steps.queues[static_cast<std::size_t>(steps.work[i].queue)];
    seconds[i] = seconds_of(steps.work[i], queue, cluster, machine);
    if (i >= steps.first_of_second) add(out, steps.work[i], queue, seconds[i]);
  }
  Simulation const simulation({steps, std::move(seconds), machine.collective_share}, classes);
  out.seconds = simulation.second_step_end() - simulation.first_step_end();
  return out;
}

}  // namespace tessera::plan
