#include "detail/norm_and_overflow.hpp"

#include <optional>
#include <span>

#include "tessera/comm/synchronous.hpp"
#include "tessera/core/exact_sum.hpp"
#include "tessera/kernels/exact_squares.hpp"

namespace tessera::zero::detail {
namespace {

constexpr auto digit_count = static_cast<std::int64_t>(ExactSum::digits);

memory::Buffer decision_buffer(char const* name, memory::MemorySpace space) {
  return {name, memory::Purpose::workspace, sizeof(kernels::StepDecision), space};
}

}  // namespace

NormAndOverflow::NormAndOverflow(StoreContext const& context)
    : context_(context),
      sums_(context.all_ranks(), "sums of squared gradients", memory::Purpose::workspace,
            Dtype::fp64, 2),
      digits_(is_exact() ? CommBuffer(context.all_ranks(), "digits of squared gradients",
                                      memory::Purpose::workspace, Dtype::int64, digit_count)
                         : CommBuffer()),
      decision_(decision_buffer("step decision", memory::memory_space_of(context.compute))) {
  if (memory::memory_space_of(context.compute) == memory::MemorySpace::device)
    read_back_ = decision_buffer("step decision, read back", memory::MemorySpace::pinned);
}

void NormAndOverflow::compute(std::vector<kernels::GradientRun> const& shards, Dtype dtype,
                              kernels::GradientLimits const& limits) {
  if (is_exact())
    kernels::exact_squares(context_.compute, static_cast<std::int64_t*>(digits_.at(0)), shards,
                           dtype);
  else
    kernels::gradient_statistics(context_.compute, static_cast<double*>(sums_.at(0)), shards,
                                 dtype);
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
  auto const& summed = is_exact() ? digits_ : sums_;
  if (!context_.contributes()) memory::zero(queue, summed.at(0), summed.bytes());
  std::optional<comm::SynchronousCalls> synchronous;
  if (queue.kind() == memory::QueueKind::inline_host) synchronous.emplace();  // which waits here
  sums_complete_ = context_.all_ranks().all_reduce(summed.view(0, is_exact() ? digit_count : 2),
                                                   comm::ReduceOp::sum, queue.record());
  sums_complete_.order_before(queue);
  if (is_exact()) round_digits();
  kernels::compute_norm_and_overflow(queue, decision(), sums, limits);
  if (read_back_.data())
    memory::copy(queue, read_back_.data(), decision_.data(), sizeof(kernels::StepDecision));
  computed_ = queue.record();
}

void NormAndOverflow::round_digits() {
  auto* const sums = static_cast<double*>(sums_.at(0));
  auto const round = [sums, digits = static_cast<std::int64_t const*>(digits_.at(0))] {
    ExactSum sum;
    sum.add(std::span<std::int64_t const, ExactSum::digits>(digits, ExactSum::digits));
    sums[0] = sum.value();
    sums[1] = sum.is_finite() ? 0.0 : 1.0;
  };
  if (context_.compute.kind() == memory::QueueKind::inline_host)
    round();
  else
    context_.compute.submit(round);
}

kernels::StepDecision NormAndOverflow::read() const {
  context_.all_ranks().wait(sums_complete_);
  computed_.wait("the gradient norm and overflow flag", compute_deadline);
  return *host_decision();
}

}  // namespace tessera::zero::detail
