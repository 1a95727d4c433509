#include "detail/step_verdict.hpp"

namespace tessera::zero::detail {
namespace {

memory::Buffer verdict_buffer(char const* name, memory::Tier tier) {
  return {name, memory::Purpose::workspace, sizeof(kernels::GradientVerdict), tier};
}

}  // namespace

StepVerdict::StepVerdict(StoreContext const& context)
    : context_(context),
      sums_(context.comm, "sums of squared gradients", memory::Purpose::workspace, Dtype::fp64, 2),
      formed_(verdict_buffer("verdict on a step", memory::tier_of(context.compute))) {
  if (memory::tier_of(context.compute) == memory::Tier::device)
    arrived_ = verdict_buffer("verdict on a step, read back", memory::Tier::pinned);
}

void StepVerdict::form(std::vector<kernels::GradientRun> const& shards, Dtype dtype,
                       kernels::GradientRule const& rule) {
  auto& compute = context_.compute;
  auto* const sums = static_cast<double*>(sums_.at(0));
  kernels::gradient_statistics(compute, sums, shards, dtype);
  summed_ = context_.comm.all_reduce(sums_.view(0, 2), comm::ReduceOp::sum, compute.record());
  summed_.order_before(compute);
  kernels::judge_gradients(compute, formed(), sums, rule);
  if (arrived_.data())
    memory::copy(compute, arrived_.data(), formed_.data(), sizeof(kernels::GradientVerdict));
  known_ = compute.record();
}

kernels::GradientVerdict StepVerdict::read() const {
  context_.comm.wait(summed_);
  known_.wait("the verdict on a step's gradients", compute_deadline);
  return *static_cast<kernels::GradientVerdict const*>(arrived_.data() ? arrived_.data()
                                                                       : formed_.data());
}

}  // namespace tessera::zero::detail
