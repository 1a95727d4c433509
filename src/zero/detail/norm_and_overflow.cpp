#include "detail/norm_and_overflow.hpp"

#include <optional>

#include "tessera/comm/synchronous.hpp"

namespace tessera::zero::detail {
namespace {

memory::Buffer decision_buffer(char const* name, memory::MemorySpace space) {
  return {name, memory::Purpose::workspace, sizeof(kernels::StepDecision), space};
}

}  // namespace

NormAndOverflow::NormAndOverflow(StoreContext const& context)
    : context_(context),
      sums_(context.all_ranks(), "sums of squared gradients", memory::Purpose::workspace,
            Dtype::fp64, 2),
      decision_(decision_buffer("step decision", memory::memory_space_of(context.compute))) {
  if (memory::memory_space_of(context.compute) == memory::MemorySpace::device)
    read_back_ = decision_buffer("step decision, read back", memory::MemorySpace::pinned);
}

void NormAndOverflow::compute(std::vector<kernels::GradientRun> const& shards, Dtype dtype,
                              kernels::GradientLimits const& limits) {
  kernels::gradient_statistics(context_.compute, static_cast<double*>(sums_.at(0)), shards, dtype);
  decide(limits);
}

void NormAndOverflow::compute(HostGradients const& gradients,
                              kernels::GradientLimits const& limits) {
  gradients.total(context_.compute, static_cast<double*>(sums_.at(0)));
  decide(limits);
}

/// The sums of all ranks, and what follows from them.
void NormAndOverflow::decide(kernels::GradientLimits const& limits) {
  auto& queue = context_.compute;
  auto* const sums = static_cast<double*>(sums_.at(0));
  if (!context_.contributes()) memory::zero(queue, sums, sums_.bytes());
  std::optional<comm::SynchronousCalls> synchronous;
  if (queue.kind() == memory::QueueKind::inline_host) synchronous.emplace();  // which waits here
  sums_complete_ =
      context_.all_ranks().all_reduce(sums_.view(0, 2), comm::ReduceOp::sum, queue.record());
  sums_complete_.order_before(queue);
  kernels::compute_norm_and_overflow(queue, decision(), sums, limits);
  if (read_back_.data())
    memory::copy(queue, read_back_.data(), decision_.data(), sizeof(kernels::StepDecision));
  computed_ = queue.record();
}

kernels::StepDecision NormAndOverflow::read() const {
  context_.all_ranks().wait(sums_complete_);
  computed_.wait("the gradient norm and overflow flag", compute_deadline);
  return *host_decision();
}

}  // namespace tessera::zero::detail
