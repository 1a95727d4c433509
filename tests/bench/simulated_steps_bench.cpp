// Steps of one rank that behaves as one of 4 or 8, with a network that is simulated
// (tests/support/delayed_collectives.hpp), next to what the simulator of tessera simulate predicts.
// One JSON line per case. The speed of the computation is measured without delays, so that a case
// shows the prediction of collectives and of their overlap, not that of a processor's speed.
//   bench.simulated_steps [STEPS]
#include <cstdio>
#include <cstdlib>

#include "overlap_measure.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/plan/step_time.hpp"

namespace {

using namespace tessera;

/// A host; only the ratios of its speeds matter.
plan::MachineProfile host_of(test::OverlapCase const& c) {
  plan::MachineProfile m;
  m.name = "simulated network";
  m.peak = {{Dtype::fp32, 1e11}, {Dtype::bf16, 1e11}};
  m.memory_bandwidth = m.host_memory_bandwidth = 1e10;
  // latency of each operation: the ranks of a ring share it
  m.intra_node = {c.latency_seconds / (c.ranks - 1), 1e9 * c.gb_per_s};
  return m;
}

/// Seconds of a step whose computation takes @p factor of that of host_of().
double predicted(test::OverlapTraining& training, test::OverlapCase const& c, double factor,
                 bool network) {
  auto machine = host_of(c);
  if (!network) machine.intra_node = {0.0, 1e18};
  train::PlannedRun run;
  run.engine = test::OverlapTraining::engine_config(c, true);
  run.ranks = c.ranks;
  run.space = memory::MemorySpace::host;
  run.rows = c.rows;
  run.sequence = c.length;
  return plan::step_time(train::plan_steps(training.model(), run, 1), {1, c.ranks}, machine,
                         {{.ranks = c.ranks, .compute = factor}})
      .seconds;
}

void compare(test::OverlapCase const& c, memory::Queue& compute) {
  test::OverlapTraining training(c, compute, true);
  auto const times = training.measure();
  double const factor = times.undelayed / predicted(training, c, 1.0, false);
  double const seconds = predicted(training, c, factor, true);
  std::printf(
      "{\"bench\": \"simulated_steps\", \"stage\": %d, \"ranks\": %d, \"gb_per_s\": %g, "
      "\"parameters\": %ld, \"undelayed\": %.5f, \"delay\": %.5f, \"measured\": %.5f, "
      "\"predicted\": %.5f, \"error\": %.4f}\n",
      c.stage, c.ranks, c.gb_per_s, static_cast<long>(training.parameters()), times.undelayed,
      times.delay, times.delayed, seconds, seconds / times.delayed - 1.0);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  memory::Runtime const runtime({0, -1});
  auto const compute = memory::make_inline_queue("compute");
  int const steps = argc > 1 ? std::atoi(argv[1]) : 4;
  if (steps < 1) {
    std::fprintf(stderr, "bench.simulated_steps [STEPS]\n");
    return 64;
  }
  try {
    for (int const ranks : {4, 8})
      for (double const gb_per_s : {0.05, 0.2})
        for (int stage = 0; stage <= 3; ++stage)
          compare({.layers = 4,
                   .width = 192,
                   .heads = 3,
                   .rows = 2,
                   .length = 64,
                   .stage = stage,
                   .ranks = ranks,
                   .gb_per_s = gb_per_s,
                   .steps = steps},
                  *compute);
  } catch (Error const& error) {
    std::fprintf(stderr, "bench.simulated_steps: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
