#include "tessera/train/memory_plan.hpp"

#include <algorithm>

#include "tessera/comm/planning.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::train {

MemoryPlan plan_memory(model::CausalLm& model, PlannedRun const& run) {
  memory::BufferPlanning const without_memory;
  auto config = run.engine;
  // no kernel has decided whether the gradients, which do not exist, are finite
  config.skip_on_nonfinite = true;
  config.loss_scaler = {};
  auto const comm = comm::make_planning_collectives(run.ranks, run.space);
  memory::PlanningQueue compute(run.space);
  auto const engine = zero::make_engine(config, model.units(), *comm, compute);
  MemoryPlan plan;
  if (config.use == zero::EngineUse::inference) {
    plan.activations = model.activation_bytes({.kind = memory::Pass::evaluation,
                                               .rows = run.rows,
                                               .sequence = run.sequence,
                                               .params = engine.get()},
                                              run.space);
    plan.states = engine->memory();
    return plan;
  }
  engine->begin_step();
  // two micro-steps: the second one adds to the gradients of the first
  int const micro_steps = std::min(config.accumulation_steps, 2);
  for (int i = 0; i < micro_steps; ++i) {
    engine->begin_micro_step(i, micro_steps);
    plan.activations = model.activation_bytes({.kind = memory::Pass::training,
                                               .rows = run.rows,
                                               .sequence = run.sequence,
                                               .gradient_checkpointing = run.gradient_checkpointing,
                                               .params = engine.get()},
                                              run.space);
  }
  engine->finish_step(0.0);
  plan.states = engine->memory();
  return plan;
}

}  // namespace tessera::train
