#pragma once
/// The time of a step: the planned work of a rank, run by events on the queues of a machine.

#include "tessera/plan/collective_cost.hpp"
#include "tessera/plan/machine_profile.hpp"
#include "tessera/plan/simulation.hpp"
#include "tessera/train/setup/memory_plan.hpp"

namespace tessera::plan {

/// Seconds of one step. The parts are times of work, whether it overlaps with other work or not.
struct StepTime {
  double seconds = 0.0;
  double compute = 0.0;        ///< products, attention and what is between them, and copies there
  double update = 0.0;         ///< of the optimizer, wherever it runs
  double communication = 0.0;  ///< collectives
  double transfers = 0.0;      ///< between device and host, and from and to drives
  double collectives = 0.0;    ///< their number
  /// Of `seconds`, when the compute queue had nothing to do.
  double exposed() const { return seconds - compute; }
};

/// Of every step after the first one: all ranks do the same work at the same time. Work starts
/// when its queue and what it waits for allow; collectives take the network one after the other.
/// @pre @p steps has two steps
StepTime step_time(train::PlannedSteps const& steps, Cluster const& cluster,
                   MachineProfile const& machine);

/// Of ranks that differ in speed: the parts are those of a rank with factors of 1.
StepTime step_time(train::PlannedSteps const& steps, Cluster const& cluster,
                   MachineProfile const& machine, std::vector<RankClass> const& classes);

/// Seconds of one piece of work without waiting.
double seconds_of(memory::PlannedWork const& work, std::string const& queue, Cluster const& cluster,
                  MachineProfile const& machine);

/// Of the activations of a product: its two larger matrices.
double operand_bytes(memory::PlannedWork const& work);

}  // namespace tessera::plan
