#include "tessera/train/setup/memory_plan.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/comm/base/planning_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/memory/memory_tracker.hpp"
#include "tessera/memory/planning.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/train/setup/engine_config.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"
#include "tessera/zero/layout/saved_states.hpp"

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
    if (run.reference)
      reference_ = zero::make_weights(*run.reference, model.units(), *comm_, compute_);
  }

  void step(int micro_steps) {
    engine_->begin_step();
    for (int i = 0; i < micro_steps; ++i) {
      engine_->begin_micro_step(i, micro_steps);
      bytes_.activations = pass(memory::Pass::training);
    }
    engine_->finish_step(0.0);
  }
  void evaluate() { bytes_.activations = pass(memory::Pass::evaluation); }

  MemoryPlan memory() const {
    MemoryPlan plan;
    plan.states = weights_->memory();
    if (reference_) {
      auto const own = reference_->memory();
      plan.states.weights += own.weights;
      plan.states.buffers += own.buffers;
      plan.states.offloaded += own.offloaded;
      plan.states.swapped += own.swapped;
    }
    plan.activations = bytes_.activations;
    plan.host_checkpoints = bytes_.host_checkpoints;
    plan.device = counted_.device();
    plan.host = counted_.host();
    auto& compute = run_.space == MemorySpace::device ? plan.device : plan.host;
    if (std::size_t const bytes = products_.workspace_bytes(); bytes > 0)
      compute.bytes[Purpose::workspace] += bytes;
    plan.attention_workspace = attention_.workspace_bytes();
    if (plan.attention_workspace > 0)
      plan.device.bytes[Purpose::workspace] += plan.attention_workspace;
    if (bytes_.activations > 0)
      compute.bytes[Purpose::activations] += memory::arena_bytes(bytes_.activations);
    if (bytes_.host_checkpoints > 0)
      plan.host.bytes[Purpose::activations] += bytes_.host_checkpoints;
    if (engine_) {
      (void)memory::take_recent_peak();
      std::size_t const before = MemoryTracker::of_process().current_total();
      (void)engine_->state();
      plan.saving = memory::take_recent_peak() - before;
      plan.memory_saves = memory_saves();
      if (plan.memory_saves > 0) plan.host.bytes[Purpose::workspace] += plan.memory_saves;
    }
    return plan;
  }

 private:
  /// Files, and the snapshot that they are written from.
  std::size_t memory_saves() const {
    if (run_.memory_copies == 0) return 0;
    int const copies = run_.memory_copies + (engine_->state_is_snapshot() ? 0 : 1);
    auto const layers = checkpoint::layers_of(zero::saved_states(engine_->config()));
    return static_cast<std::size_t>(copies) *
           checkpoint::BackgroundSaver::snapshot_bytes(engine_->plan(), layers);
  }
  std::size_t pass(memory::Pass kind) {
    model::PlannedPass const planned{.kind = kind,
                                     .rows = run_.rows,
                                     .sequence = run_.sequence,
                                     .recompute = run_.recompute,
                                     .params = engine_,
                                     .weights = weights_.get(),
                                     .cpu_checkpointing = run_.cpu_checkpointing};
    if (run_.space == MemorySpace::device && kind == memory::Pass::training)
      bytes_.host_checkpoints = model_.host_checkpoint_bytes(planned);
    return model_.activation_bytes(planned, run_.space);
  }

  struct PassBytes {
    std::size_t activations = 0, host_checkpoints = 0;
  };

  model::CausalLm& model_;
  PlannedRun run_;
  Counted counted_;
  memory::BufferPlanning without_memory_;
  kernels::ProductPlanning products_{memory::Runtime::default_threads()};
  kernels::AttentionPlanning attention_{run_.cudnn};
  memory::PlanningQueue compute_;
  std::unique_ptr<comm::Collectives> comm_;
  std::unique_ptr<zero::Weights> weights_;
  zero::Engine* engine_ = nullptr;  ///< the object of `weights_` if it trains
  std::unique_ptr<zero::Weights> reference_;
  PassBytes bytes_;
};

}  // namespace

std::size_t PlannedSpace::total() const {
  std::size_t sum = 0;
  for (auto const& [purpose, count] : bytes) sum += count;
  return sum;
}

std::optional<kernels::CudnnDevice> planned_cudnn(config::TrainingArguments const& arguments) {
  bool const portable = arguments.device_attention == kernels::DeviceAttention::portable;
  if (arguments.use_cpu || portable || !arguments.device_memory.empty()) return std::nullopt;
  return kernels::CudnnDevice{.deterministic = arguments.deterministic};
}

std::optional<zero::EngineConfig> reference_weights(config::TrainingArguments const& arguments,
                                                    config::ResolvedConfig const& config,
                                                    std::optional<model::LoraOptions> const& lora) {
  bool const is_kept = arguments.task == config::Task::dpo && !arguments.precompute_ref_log_probs;
  if (!is_kept || reference_is_part_of_model(arguments, lora)) return std::nullopt;
  return reference_config(config);
}

int copies_for_memory_saves(config::TrainingArguments const& arguments, int nodes) {
  bool const off = arguments.memory_save_steps.count == config::MemorySaveSteps::off;
  return off ? 0 : checkpoint::memory_copies(nodes);
}

std::int64_t planned_sequence(config::TrainingArguments const& arguments,
                              model::CausalLm const& model) {
  constexpr std::int64_t default_block_size = 1024;
  std::int64_t const most = model.max_positions(),
                     out = arguments.block_size.value_or(std::min(default_block_size, most));
  TESSERA_VALIDATE(out <= most, ConfigError, "block_size is ", out, " but the model has ", most,
                   " positions; use --block_size ", most, " or less");
  return out;
}

PlannedRun planned_run(config::TrainingArguments const& arguments,
                       config::ResolvedConfig const& config,
                       std::optional<model::LoraOptions> const& lora, MemorySpace space,
                       int nodes) {
  PlannedRun run;
  run.engine = engine_config(config, lora);
  run.ranks = config.world_size;
  run.space = space;
  check_space(config, space);
  run.rows = config.micro_batch_size * (arguments.task == config::Task::dpo ? 2 : 1);
  run.cpu_checkpointing = config.cpu_checkpointing;
  if (space == MemorySpace::device) run.cudnn = planned_cudnn(arguments);
  run.memory_copies = copies_for_memory_saves(arguments, nodes);
  run.reference = reference_weights(arguments, config, lora);
  return run;
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

namespace {

std::string bytes_text(std::size_t count) { return human_bytes(static_cast<std::int64_t>(count)); }

std::string names_of(SwapRoom const& room) {
  std::string out;
  for (auto const& directory : room.directories)
    out += concat(out.empty() ? "" : " and ", directory.string());
  return out;
}

/// What the engine of a rank will need, without its memory and files.
/// @throws ConfigError when the buffers of weights are too small for the model's units
zero::MemoryReport planned_memory(zero::EngineConfig const& config,
                                  std::vector<memory::UnitSpec> const& units, int ranks,
                                  StatesOf states) try {
  memory::BufferPlanning const without_memory;
  memory::PlanningQueue compute(states.space);
  auto const comm = comm::make_planning_collectives(ranks, states.space);
  if (states.pass == memory::Pass::evaluation)
    return zero::make_weights(config, units, *comm, compute)->memory();
  return zero::make_engine(config, units, *comm, compute)->memory();
} catch (ConfigError const& e) {
  auto const& weights = zero::settings<zero::ShardedWeights>(config).weight_swap;
  if (!weights || zero::trained_parameters(units).empty()) throw;
  throw ConfigError(
      concat("offload_param.buffer_size is ", weights->buffer_numel, " elements: ", e.what()));
}

/// Adds @p bytes to the devices of @p directories; several directories take equal parts.
void add(std::map<dev_t, SwapRoom>& rooms, memory::SwapDirectories const& directories,
         std::size_t bytes, std::size_t SwapRoom::*part) {
  for (auto const& directory : directories) {
    struct stat file {};
    struct statvfs system {};
    bool const is_known =
        ::stat(directory.c_str(), &file) == 0 && ::statvfs(directory.c_str(), &system) == 0;
    if (!is_known || system.f_blocks == 0) continue;  // no blocks: not of files, such as /proc
    auto& room = rooms[file.st_dev];
    auto& names = room.directories;
    if (std::find(names.begin(), names.end(), directory) == names.end()) names.push_back(directory);
    room.*part += ceil_divide(bytes, directories.size());
    room.free = static_cast<std::size_t>(system.f_bavail) * system.f_frsize;
  }
}

}  // namespace

std::vector<SwapRoom> swap_rooms(zero::EngineConfig const& config,
                                 zero::MemoryReport const& memory) {
  std::map<dev_t, SwapRoom> found;
  if (auto const& swap = zero::settings<zero::ShardedStates>(config).optimizer_swap)
    add(found, swap->transfers.directories, memory.swapped - memory.swapped_weights,
        &SwapRoom::optimizer);
  if (auto const& swap = zero::settings<zero::ShardedWeights>(config).weight_swap)
    add(found, swap->transfers.directories, memory.swapped_weights, &SwapRoom::weights);
  std::vector<SwapRoom> out;
  for (auto& [device, room] : found) out.push_back(std::move(room));
  return out;
}

std::string swap_shortage(std::vector<SwapRoom> const& rooms, int ranks, std::string const& host) {
  for (auto const& room : rooms) {
    auto const needed = room.needed(ranks);
    if (needed <= room.free) continue;
    auto const all = static_cast<std::size_t>(ranks);
    return concat("nvme_path ", names_of(room), " on host ", host, " has ", bytes_text(room.free),
                  " free, and swap files of ", counted(ranks, "rank"), " there need ",
                  bytes_text(needed), " (master weights and optimizer states ",
                  bytes_text(all * room.optimizer), ", weights ", bytes_text(all * room.weights),
                  "); free ", bytes_text(needed - room.free),
                  ", name more drives in nvme_path, separated by ':', use more nodes, or set "
                  "device \"cpu\" for one of offload_optimizer and offload_param");
  }
  return {};
}

void check_swap_room(zero::EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                     topology::RankInfo const& rank, comm::Collectives& comm, StatesOf states) {
  auto const& weights = zero::settings<zero::ShardedWeights>(config).weight_swap;
  if (!zero::settings<zero::ShardedStates>(config).optimizer_swap && !weights) return;
  auto const rooms = swap_rooms(config, planned_memory(config, units, comm.size(), states));
  auto const shortage = swap_shortage(rooms, rank.local_size, rank.host);
  auto const first = comm::all_reduce_value(
      comm, std::int64_t{shortage.empty() ? comm.size() : comm.rank()}, comm::ReduceOp::min);
  if (first < comm.size())
    throw IoError(comm::broadcast_bytes(comm, shortage, static_cast<int>(first)));
  for (auto const& room : rooms)
    log::info(concat("nvme_path ", names_of(room), ": swap files of ",
                     counted(rank.local_size, "rank"), " of this node need ",
                     bytes_text(room.needed(rank.local_size)), " of ", bytes_text(room.free),
                     " free"));
}

}  // namespace tessera::train
