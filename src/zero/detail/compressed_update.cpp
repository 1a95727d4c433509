#include "detail/compressed_update.hpp"

#include "tessera/kernels/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

std::size_t state_with(OptimizerState const& state, char const* name) {
  std::size_t k = 0;
  while (k < state.count() && state.spec(k).name != name) ++k;
  TESSERA_EXPECT(k < state.count(), "the optimizer has no state ", name);
  return k;
}

}  // namespace

CompressedUpdate::CompressedUpdate(StoreContext const& context, OptimizerState& state,
                                   optim::Compression const& optimizer)
    : context_(context),
      state_(state),
      worker_error_(state_with(state, optim::worker_error_name)),
      server_error_(state_with(state, optim::server_error_name)),
      exchange_(context, optimizer.scales(), memory::memory_space_of(context.compute)),
      exchanged_("exchanged values of a unit", memory::Purpose::workspace,
                 static_cast<std::size_t>(context.plan.largest_unit()) * sizeof(float),
                 memory::memory_space_of(context.compute)) {}

void CompressedUpdate::run(optim::Compression const& optimizer, optim::StepControl const& control) {
  auto& queue = context_.compute;
  bool const is_alone = context_.plan.ranks() == 1;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    optimizer.advance(queue, state_.segments(u), control);
    if (!is_alone) exchange_.send(u, state_.values(worker_error_, u));
  }
  if (!is_alone)
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
      exchange_.reduce(u, state_.values(server_error_, u));
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    auto* const out = static_cast<float*>(exchanged_.data());
    if (is_alone) {  // nothing is compressed, nothing is lost
      auto const bytes =
          static_cast<std::size_t>(context_.plan.unit(u).padded_numel) * sizeof(float);
      memory::copy(queue, out, state_.values(worker_error_, u), bytes);
      memory::zero(queue, state_.values(worker_error_, u), bytes);
    } else {
      exchange_.receive(u, out);
    }
    optimizer.complete(queue, state_.segments(u), control, exchanged(u));
  }
  errors_differ_ = !is_alone;
}

/// Parallel to the segments of the unit, which are of fp32 master weights.
optim::Directions CompressedUpdate::exchanged(UnitIndex unit) const {
  optim::Directions out;
  auto const* const first = state_.values(OptimizerState::master_weights, unit);
  for (auto const& s : state_.segments(unit).list)
    out.push_back(static_cast<float*>(exchanged_.data()) +
                  (static_cast<float const*>(s.master) - first));
  return out;
}

void CompressedUpdate::average_errors() {
  if (!errors_differ_) return;
  auto& queue = context_.compute;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    memory::TensorView const errors(state_.values(worker_error_, u), Dtype::fp32,
                                    {context_.plan.unit(u).padded_numel});
    auto const sum = context_.comm.all_reduce(errors, comm::ReduceOp::sum, queue.record());
    context_.comm.wait(sum);
    kernels::scale(queue, errors, 1.0f / static_cast<float>(context_.plan.ranks()));
  }
  queue.record().wait("the mean of the errors of compression", compute_deadline);
  errors_differ_ = false;
}

}  // namespace tessera::zero::detail
