#include "detail/norm_and_overflow.hpp"

namespace tessera::zero::detail {
namespace {

memory::Buffer verdict_buffer(char const* name, memory::MemorySpace space) {
  return {name, memory::Purpose::workspace, sizeof(kernels::StepDecision), space};
}

}  // namespace

NormAndOverflow::NormAndOverflow(StoreContext const& context)
    : context_(context),
      sums_(context.comm, "sums of squared gradients", memory::Purpose::workspace, Dtype::fp64, 2),
      formed_(verdict_buffer("verdict on a step", memory::memory_space_of(context.compute))) {
  if (memory::memory_space_of(context.compute) == memory::MemorySpace::device)
    arrived_ = verdict_buffer("verdict on a step, read back", memory::MemorySpace::pinned);
}

void NormAndOverflow::form(std::vector<kernels::GradientRun> const& shards, Dtype dtype,
                           kernels::GradientLimits const& rule) {
  auto& compute = context_.compute;
  auto* const sums = static_cast<double*>(sums_.at(0));
  kernels::gradient_statistics(compute, sums, shards, dtype);
  summed_ = context_.comm.all_reduce(sums_.view(0, 2), comm::ReduceOp::sum, compute.record());
  summed_.order_before(compute);
  kernels::compute_norm_and_overflow(compute, formed(), sums, rule);
  if (arrived_.data())
    memory::copy(compute, arrived_.data(), formed_.data(), sizeof(kernels::StepDecision));
  known_ = compute.record();
}

kernels::StepDecision NormAndOverflow::read() const {
  context_.comm.wait(summed_);
  known_.wait("the verdict on a step's gradients", compute_deadline);
  return *static_cast<kernels::StepDecision const*>(arrived_.data() ? arrived_.data()
                                                                    : formed_.data());
}

}  // namespace tessera::zero::detail
