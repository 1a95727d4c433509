#include "tessera/train/setup/memory_plan.hpp"

#include <algorithm>
#include <utility>

#include "tessera/comm/base/recording.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/memory/memory_tracker.hpp"
#include "tessera/memory/planning.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::train {
namespace {

using memory::MemorySpace;
using memory::MemoryTracker;
using memory::Purpose;

/// The bytes that the trackers count from now on.
class Counted {
 public:
  Counted() : device_(bytes_of(MemorySpace::device)), host_(bytes_of(MemorySpace::host)) {}
  PlannedSpace device() const { return since(device_, MemorySpace::device); }
  PlannedSpace host() const { return since(host_, MemorySpace::host); }

 private:
  static std::map<Purpose, std::size_t> bytes_of(MemorySpace space) {
    using enum Purpose;
    std::map<Purpose, std::size_t> out;
    for (auto const purpose : {weights, gradients, master_weights, optimizer_state, communication,
                               activations, workspace, data})
      out[purpose] = MemoryTracker::of(space).current(purpose);
    return out;
  }
  static PlannedSpace since(std::map<Purpose, std::size_t> const& before, MemorySpace space) {
    PlannedSpace out;
    for (auto const& [purpose, bytes] : bytes_of(space))
      if (bytes > before.at(purpose)) out.bytes[purpose] = bytes - before.at(purpose);
    return out;
  }

  std::map<Purpose, std::size_t> device_, host_;
};

/// An engine, or weights for inference, without memory, and the steps or passes that it takes.
class Planned {
 public:
  Planned(model::CausalLm& model, PlannedRun const& run)
      : model_(model), run_(run), compute_(run.space) {
    auto config = run.engine;
    // no kernel has decided whether the gradients, which do not exist, are finite
    config.skip_on_nonfinite = true;
    config.loss_scaler = {};
    comm_ = comm::make_planning_collectives(run.ranks, run.space);
    if (run.pass == memory::Pass::training) {
      auto engine = zero::make_engine(config, model.units(), *comm_, compute_);
      engine_ = engine.get();
      weights_ = std::move(engine);
    } else {
      weights_ = zero::make_weights(config, model.units(), *comm_, compute_);
    }
  }

  void step(int micro_steps) {
    engine_->begin_step();
    for (int i = 0; i < micro_steps; ++i) {
      engine_->begin_micro_step(i, micro_steps);
      activations_ = pass(memory::Pass::training);
    }
    engine_->finish_step(0.0);
  }
  void evaluate() { activations_ = pass(memory::Pass::evaluation); }

  MemoryPlan memory() const {
    MemoryPlan plan;
    plan.states = weights_->memory();
    plan.activations = activations_;
    plan.host_checkpoints = host_checkpoints_;
    plan.device = counted_.device();
    plan.host = counted_.host();
    auto& compute = run_.space == MemorySpace::device ? plan.device : plan.host;
    if (std::size_t const bytes = products_.workspace_bytes(); bytes > 0)
      compute.bytes[Purpose::workspace] += bytes;
    if (activations_ > 0) compute.bytes[Purpose::activations] += memory::arena_bytes(activations_);
    if (host_checkpoints_ > 0) plan.host.bytes[Purpose::activations] += host_checkpoints_;
    if (engine_) {
      (void)memory::take_recent_peak();
      std::size_t const before = MemoryTracker::of_process().current_total();
      (void)engine_->state();
      plan.saving = memory::take_recent_peak() - before;
    }
    return plan;
  }

 private:
  std::size_t pass(memory::Pass kind) {
    model::PlannedPass const planned{.kind = kind,
                                     .rows = run_.rows,
                                     .sequence = run_.sequence,
                                     .recompute = run_.recompute,
                                     .params = engine_,
                                     .weights = weights_.get(),
                                     .cpu_checkpointing = run_.cpu_checkpointing};
    if (run_.space == MemorySpace::device && kind == memory::Pass::training)
      host_checkpoints_ = model_.host_checkpoint_bytes(planned);
    return model_.activation_bytes(planned, run_.space);
  }

  model::CausalLm& model_;
  PlannedRun run_;
  Counted counted_;
  memory::BufferPlanning without_memory_;
  kernels::ProductPlanning products_{memory::Runtime::default_threads()};
  memory::PlanningQueue compute_;
  std::unique_ptr<comm::Collectives> comm_;
  std::unique_ptr<zero::Weights> weights_;
  zero::Engine* engine_ = nullptr;  ///< the object of `weights_` if it trains
  std::size_t activations_ = 0, host_checkpoints_ = 0;
};

}  // namespace

std::size_t PlannedSpace::total() const {
  std::size_t sum = 0;
  for (auto const& [purpose, count] : bytes) sum += count;
  return sum;
}

MemoryPlan plan_memory(model::CausalLm& model, PlannedRun const& run) {
  Planned planned(model, run);
  if (run.pass == memory::Pass::evaluation)
    planned.evaluate();
  else  // the second micro-step adds to the gradients of the first
    planned.step(std::min(run.engine.accumulation_steps, 2));
  return planned.memory();
}

PlannedSteps plan_steps(model::CausalLm& model, PlannedRun const& run, int micro_steps) {
  TESSERA_EXPECT(run.pass == memory::Pass::training && micro_steps >= 1);
  PlannedSteps out;
  memory::WorkTrace trace;
  Planned planned(model, run);
  planned.step(micro_steps);
  out.first_of_second = trace.work().size();
  planned.step(micro_steps);
  out.queues = trace.queues();
  out.work = trace.take_work();  // before memory(), whose copies of states are no part of a step
  out.memory = planned.memory();
  return out;
}

}  // namespace tessera::train
