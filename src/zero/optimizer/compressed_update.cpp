#include "optimizer/compressed_update.hpp"

#include <utility>

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

std::size_t state_with(OptimizerState const& state, char const* name) {
  std::size_t k = 0;
  while (k < state.states().count() && state.states().spec(k).name != name) ++k;
  TESSERA_EXPECT(k < state.states().count(), "the optimizer has no state ", name);
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
  bool const is_alone = context_.plan.ranks() == 1;
  auto const for_units = [&](auto const& work) {
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) work(u);
  };
  errors_differ_ = !is_alone;
  for_units([&](UnitIndex u) { optimizer.advance(context_.compute, state_.segments(u), control); });
  if (!is_alone) {
    for_units([&](UnitIndex u) { exchange_.send(u, state_.values(worker_error_, u)); });
    for_units([&](UnitIndex u) { exchange_.reduce(u, state_.values(server_error_, u)); });
  }
  for_units([&](UnitIndex u) {
    if (is_alone)  // nothing is compressed, nothing is lost
      take_worker_errors(u);
    else
      exchange_.receive(u, static_cast<float*>(exchanged_.data()));
    optimizer.complete(context_.compute, state_.segments(u), control, exchanged(u));
  });
}

void CompressedUpdate::take_worker_errors(UnitIndex unit) {
  auto const bytes =
      static_cast<std::size_t>(context_.plan.unit(unit).padded_numel) * sizeof(float);
  memory::copy(context_.compute, exchanged_.data(), state_.values(worker_error_, unit), bytes);
  memory::zero(context_.compute, state_.values(worker_error_, unit), bytes);
}

/// Parallel to the segments of the unit, which are of fp32 master weights.
optim::Directions CompressedUpdate::exchanged(UnitIndex unit) const {
  optim::Directions out;
  auto const* const first = state_.values(master_weights, unit);
  for (auto const& s : state_.segments(unit).list)
    out.push_back(static_cast<float*>(exchanged_.data()) +
                  (static_cast<float const*>(s.master) - first));
  return out;
}

void CompressedUpdate::average_worker_errors() {
  if (!std::exchange(errors_differ_, false)) return;
  auto& queue = context_.compute;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    memory::TensorView const errors(state_.values(worker_error_, u), Dtype::fp32,
                                    {context_.plan.unit(u).padded_numel});
    context_.comm.wait(context_.comm.all_reduce(errors, comm::ReduceOp::sum, queue.record()));
    kernels::scale(queue, errors, 1.0f / static_cast<float>(context_.plan.ranks()));
  }
  queue.record().wait("the mean over the ranks", compute_deadline);
}

}  // namespace tessera::zero::detail
