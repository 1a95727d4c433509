#include "tessera/train/setup/activation_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/attention/attention.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::train {
namespace {

std::string text(std::size_t bytes) { return human_bytes(static_cast<std::int64_t>(bytes)); }

/// What this rank may still allocate for its passes.
memory::AvailableMemory room(memory::MemorySpace space, int ranks_on_node) {
  if (space == memory::MemorySpace::device)
    return {memory::free_device_bytes(), "free on the device"};
  return memory::available_memory(static_cast<std::size_t>(ranks_on_node));
}

class Plan {
 public:
  Plan(model::CausalLm& model, memory::MemorySpace space, PlannedPasses const& passes)
      : model_(model), space_(space), passes_(passes) {}

  std::size_t training(std::int64_t rows, Recompute recompute) const {
    return bytes({.kind = memory::Pass::training,
                  .rows = rows,
                  .sequence = passes_.train_sequence,
                  .recompute = recompute,
                  .cpu_checkpointing = passes_.cpu_checkpointing});
  }
  std::size_t evaluation(std::int64_t rows) const {
    return bytes(
        {.kind = memory::Pass::evaluation, .rows = rows, .sequence = passes_.evaluation_sequence});
  }
  /// With the workspace of cuDNN's attention, which has a slower algorithm where that does not fit.
  std::size_t training_at_full_speed(std::int64_t rows,
                                     std::optional<kernels::CudnnDevice> const& cudnn) const {
    kernels::AttentionPlanning const attention(cudnn);
    std::size_t const activations = training(rows, passes_.recompute);
    return activations + attention.workspace_bytes();
  }
  /// The most rows whose pass fits into @p bytes. @pre @p rows do not fit
  template <class Need>
  static std::int64_t rows_that_fit(std::int64_t rows, std::size_t bytes, Need const& need) {
    std::int64_t fit = 0, too_many = rows;
    while (too_many - fit > 1) {
      std::int64_t const middle = fit + (too_many - fit) / 2;
      (need(middle) <= bytes ? fit : too_many) = middle;
    }
    return fit;
  }

  std::string training_advice(std::size_t left) const {
    std::string out;
    auto const plain = rows_that_fit(passes_.train_rows, left, [&](std::int64_t rows) {
      return training(rows, passes_.recompute);
    });
    if (plain > 0)
      out = fmt::format("--per_device_train_batch_size {} with more gradient_accumulation_steps",
                        plain);
    out += recompute_advice(left, plain, out.empty());
    return out.empty() ? "a shorter --block_size or a smaller model" : out;
  }
  /// The least recomputation with which the rows fit, else how many fit with the most.
  std::string recompute_advice(std::size_t left, std::int64_t plain, bool is_first) const {
    using enum Recompute;
    if (passes_.recompute == block) return "";
    char const* const names[] = {"", "--recompute light", "--gradient_checkpointing"};
    for (auto const more : {light, block}) {
      if (more <= passes_.recompute) continue;
      if (auto const less = training(passes_.train_rows, more); less <= left)
        return fmt::format("{}{} ({})", is_first ? "" : ", ", names[static_cast<int>(more)],
                           text(less));
    }
    auto const rows = rows_that_fit(passes_.train_rows, left,
                                    [&](std::int64_t count) { return training(count, block); });
    if (rows <= plain) return "";
    return fmt::format("{}{} with --per_device_train_batch_size {}", is_first ? "" : ", or ",
                       names[static_cast<int>(block)], rows);
  }
  std::string evaluation_advice(std::size_t left) const {
    auto const rows = rows_that_fit(passes_.evaluation_rows, left,
                                    [&](std::int64_t count) { return evaluation(count); });
    return rows > 0 ? fmt::format("--per_device_eval_batch_size {}", rows)
                    : "a shorter --block_size or a smaller model";
  }

 private:
  /// Bytes of a pass whose samples have a row each, or share one.
  std::size_t bytes(model::PlannedPass pass) const {
    if (pass.rows == 0) return 0;
    if (passes_.flat) pass.sequence *= std::exchange(pass.rows, 1);
    pass.measures_tokens = passes_.measures_tokens;
    return model_.activation_bytes(pass, space_);
  }

  model::CausalLm& model_;
  memory::MemorySpace space_;
  PlannedPasses passes_;
};

/// Checks that the host has room for activation checkpoints.
void require_host_room(std::size_t need, PlannedPasses const& passes) {
  auto const left = room(memory::MemorySpace::host, passes.ranks_on_node);
  TESSERA_VALIDATE(need <= left.bytes, OutOfMemoryError, "the activation checkpoints of ",
                   passes.train_rows, " x ", passes.train_sequence, " tokens need ", text(need),
                   " of host memory on each of ", counted(passes.ranks_on_node, "rank"),
                   " of host ", host_name(), ", but ", text(left.bytes), " per rank are left (",
                   left.limited_by,
                   "); use a smaller --per_device_train_batch_size, or leave "
                   "activation_checkpointing.cpu_checkpointing out");
}

void require_room(Plan const& plan, PlannedPasses const& passes, memory::MemorySpace space) {
  auto const left = room(space, passes.ranks_on_node);
  auto const refuse = [&](char const* pass, std::int64_t rows, std::int64_t sequence,
                          std::size_t need, std::string const& advice) {
    throw OutOfMemoryError(fmt::format(
        "the activations of {} with {} x {} tokens need {} on each of {} of host {}, but {} per "
        "rank are left ({}); use {}, or fewer ranks per node",
        pass, rows, sequence, text(need), counted(passes.ranks_on_node, "rank"), host_name(),
        text(left.bytes), left.limited_by, advice));
  };
  std::size_t const train = plan.training(passes.train_rows, passes.recompute);
  if (train > left.bytes)
    refuse("a training micro-batch", passes.train_rows, passes.train_sequence, train,
           plan.training_advice(left.bytes));
  std::size_t const evaluation = plan.evaluation(passes.evaluation_rows);
  if (evaluation > left.bytes)
    refuse("an evaluation batch", passes.evaluation_rows, passes.evaluation_sequence, evaluation,
           plan.evaluation_advice(left.bytes));
}

}  // namespace

std::size_t host_checkpoint_bytes(model::CausalLm const& model, memory::Queue const& compute,
                                  PlannedPasses const& passes) {
  if (memory::memory_space_of(compute) != memory::MemorySpace::device) return 0;
  return model.host_checkpoint_bytes({.kind = memory::Pass::training,
                                      .rows = passes.train_rows,
                                      .sequence = passes.train_sequence,
                                      .recompute = passes.recompute,
                                      .cpu_checkpointing = passes.cpu_checkpointing});
}

std::size_t reserve_activations(model::CausalLm& model, memory::Queue& compute,
                                comm::Collectives& comm, PlannedPasses const& passes) {
  auto const space = memory::memory_space_of(compute);
  Plan const plan(model, space, passes);
  std::size_t const bytes = std::max(plan.training(passes.train_rows, passes.recompute),
                                     plan.evaluation(passes.evaluation_rows));
  comm::run_on_ranks(comm, true, [&] {
    require_room(plan, passes, space);
    require_host_room(host_checkpoint_bytes(model, compute, passes), passes);
  });
  comm::run_on_ranks(comm, true, [&] { model.reserve_activations(bytes, compute); });
  return bytes;
}

std::int64_t fitting_train_rows(model::CausalLm& model, memory::Queue& compute,
                                comm::Collectives& comm, PlannedPasses const& passes) {
  auto const space = memory::memory_space_of(compute);
  Plan const plan(model, space, passes);
  std::size_t const left = room(space, passes.ranks_on_node).bytes;
  std::optional<kernels::CudnnDevice> cudnn;
  auto const& settings = kernels::device_settings();
  if (memory::on_gpu(compute) && settings.attention != kernels::DeviceAttention::portable)
    cudnn = {settings.deterministic, memory::describe_device(memory::Runtime::device()).major};
  std::int64_t rows = passes.train_rows;
  while (rows > 1 && plan.training_at_full_speed(rows, cudnn) > left) rows /= 2;
  return comm::all_reduce_value(comm, rows, comm::ReduceOp::min);
}

}  // namespace tessera::train
